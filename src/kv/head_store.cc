#include "kv/head_store.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace rkv::kv {
namespace {

constexpr std::size_t kPositionBytes = kBlockRows * sizeof(std::int32_t);

std::size_t BlocksFor(std::int64_t rows) {
  return static_cast<std::size_t>((rows + kBlockRows - 1) / kBlockRows);
}

}  // namespace

HeadStore::HeadStore(std::int32_t head_dim, Codec codec, BlockPool& pool, MemoryMeter& meter)
    : head_dim_(head_dim), codec_(codec), pool_(&pool), meter_(&meter) {
  Check(head_dim > 0 && pool.block_bytes() >= BlockBytes(head_dim, codec),
        "the pool's blocks are too small for these rows");
}

HeadStore::~HeadStore() { Truncate(0); }

HeadStore::HeadStore(HeadStore&& other) noexcept
    : head_dim_(other.head_dim_),
      codec_(other.codec_),
      pool_(other.pool_),
      meter_(other.meter_),
      blocks_(std::exchange(other.blocks_, {})),
      positions_(std::exchange(other.positions_, {})) {}

std::size_t HeadStore::BlockBytes(std::int32_t head_dim, Codec codec) {
  return std::size_t{kBlockRows} * RowBytes(codec, head_dim);
}

HeadView HeadStore::view() const {
  return {blocks_.data(), positions_.data(), rows(), head_dim_, codec_};
}

Status HeadStore::AddBlocks(std::size_t blocks) {
  const std::size_t before = blocks_.size();
  while (blocks_.size() < blocks) {
    const Result<std::byte*> block = pool_->Allocate();
    if (!block) {
      DropBlocks(before);
      return block.error();
    }
    blocks_.push_back(*block);
    meter_->AddRows(pool_->block_bytes() + kPositionBytes);
  }
  return {};
}

void HeadStore::DropBlocks(std::size_t blocks) {
  for (; blocks_.size() > blocks; blocks_.pop_back()) {
    pool_->Free(blocks_.back());
    meter_->SubRows(pool_->block_bytes() + kPositionBytes);
  }
}

Result<std::int32_t> HeadStore::Extend(std::int32_t count, std::int32_t first_position) {
  Check(count >= 0 && first_position >= 0, "rows to add out of range");
  Check(positions_.empty() || first_position > positions_.back(), "positions must ascend");
  const std::int32_t first_row = rows();
  Status status = AddBlocks(BlocksFor(std::int64_t{first_row} + count));
  if (!status.ok()) {
    return status;
  }
  for (std::int32_t i = 0; i < count; ++i) {
    positions_.push_back(first_position + i);
  }
  return first_row;
}

void HeadStore::WriteRow(std::int32_t row, std::span<const float> key,
                         std::span<const float> value) {
  const auto width = static_cast<std::size_t>(head_dim_);
  Check(key.size() == width && value.size() == width, "a row has head_dim numbers");
  std::byte* const place = MutableRow(row);
  EncodeRow(codec_, key, place);
  EncodeRow(codec_, value, place + view().value_offset(), Part::kValue);
}

std::byte* HeadStore::MutableRow(std::int32_t row) {
  Check(row >= 0 && row < rows(), "row out of range");
  return blocks_[static_cast<std::size_t>(row / kBlockRows)] +
         static_cast<std::size_t>(row % kBlockRows) * view().row_bytes();
}

void HeadStore::Keep(std::span<const std::int32_t> rows) {
  const HeadView from = view();
  std::int32_t target = 0;
  for (const std::int32_t row : rows) {
    Check(row >= target && row < from.rows && (target == 0 || row > rows[target - 1]),
          "rows to keep must be stored and ascend");
    if (row != target) {
      std::memcpy(MutableRow(target), from.Key(row), from.row_bytes());
      positions_[static_cast<std::size_t>(target)] = positions_[static_cast<std::size_t>(row)];
    }
    ++target;
  }
  Truncate(target);
}

Status HeadStore::CopyFrom(const HeadStore& from, std::span<const std::int32_t> rows) {
  Check(&from != this && from.head_dim_ == head_dim_ && from.codec_ == codec_,
        "a copy needs another store with rows of the same form");
  Truncate(0);
  Status status = AddBlocks(BlocksFor(static_cast<std::int64_t>(rows.size())));
  if (!status.ok()) {
    return status;
  }
  const HeadView source = from.view();
  positions_.reserve(rows.size());
  for (const std::int32_t row : rows) {
    Check(row >= 0 && row < source.rows, "rows to copy must be stored");
    Check(positions_.empty() || source.positions[row] > positions_.back(), "rows must ascend");
    positions_.push_back(source.positions[row]);
    std::memcpy(MutableRow(this->rows() - 1), source.Key(row), source.row_bytes());
  }
  return {};
}

void HeadStore::Truncate(std::int32_t rows) {
  Check(rows >= 0 && rows <= this->rows(), "rows to leave out of range");
  DropBlocks(BlocksFor(rows));
  positions_.resize(static_cast<std::size_t>(rows));
  // The meter counts positions of stored blocks only: room for more than twice as many goes back.
  if (positions_.capacity() / 2 > positions_.size() || rows == 0) {
    positions_.shrink_to_fit();
  }
}

void HeadStore::CheckInvariants() const {
  Check(blocks_.size() == BlocksFor(rows()), "blocks do not match rows");
  for (const std::byte* const block : blocks_) {
    Check(block != nullptr, "a block is missing");
  }
  for (std::size_t i = 1; i < positions_.size(); ++i) {
    Check(positions_[i - 1] < positions_[i], "positions do not ascend");
  }
}

}  // namespace rkv::kv
