// The products of packed weights, once for every instruction set. The file that includes this has
// defined, in a namespace of its own and with its target switched on:
//   Ints   16 x 32 bits or 64 bytes; Floats: 16 f32
//   LoadInts, LoadFloats, HalfFloats, ByteFloats, SignedByteFloats, Broadcast, BroadcastInts
//   And, Or, ShiftLeft<n>, ShiftRight<n> (in 16-bit lanes)
//   MultiplyAdd, Multiply, ToFloats, ZeroFloats, StoreFloats
//   DotFour<bits>(w, x): per 32-bit lane the sum over four groups i of w[i]'s unsigned bytes, each
//     below 2^bits, times the signed bytes x[i]
// No include guard: it is included once by each such file.

// What is fixed at compile time of a ggml_type.
template <std::uint32_t kType>
struct Format {
  static constexpr bool kIsK =
      kType == GGML_TYPE_Q4_K || kType == GGML_TYPE_Q5_K || kType == GGML_TYPE_Q6_K;
  static constexpr bool kHasMinimum = kType == GGML_TYPE_Q4_1 || kType == GGML_TYPE_Q5_1 ||
                                      kType == GGML_TYPE_Q4_K || kType == GGML_TYPE_Q5_K;
  static constexpr int kBits =
      kType == GGML_TYPE_Q8_0                                                         ? 8
      : kType == GGML_TYPE_Q6_K                                                       ? 6
      : kType == GGML_TYPE_Q5_0 || kType == GGML_TYPE_Q5_1 || kType == GGML_TYPE_Q5_K ? 5
                                                                                      : 4;
  static constexpr float kCentre = kHasMinimum ? 0.0f : static_cast<float>(1 << (kBits - 1));
  static constexpr std::size_t kHeader = kIsK ? (kHasMinimum ? 64 : 32) : 0;
  static constexpr std::size_t kLow = kBits == 8 ? 512 : 256;
  static constexpr std::size_t kHigh = kBits == 5 ? 64 : kBits == 6 ? 128 : 0;
  static constexpr std::size_t kScales = kIsK || !kHasMinimum ? 32 : 64;
  static constexpr std::size_t kBlocks = kIsK ? 8 : 1;  // of a unit
  static constexpr std::size_t kBlockBytes = kLow + kHigh + kScales;
};

// The bytes of groups [4 half, 4 half + 4) of a block.
template <class F, int kSide>
inline void LoadHalf(const std::uint8_t* block, Ints (&w)[4]) {
  if constexpr (F::kBits == 8) {
    for (int g = 0; g < 4; ++g) {
      w[g] = LoadInts(block + (kSide * 4 + g) * 64);
    }
    return;
  }
  const Ints low_bits = BroadcastInts(0x0f0f0f0f);
  for (int g = 0; g < 4; ++g) {
    const Ints pair = LoadInts(block + g * 64);
    w[g] = And(kSide == 0 ? pair : ShiftRight<4>(pair), low_bits);
  }
  if constexpr (F::kBits == 5) {  // bit 4 side + g of `high` becomes bit 4
    const Ints fifth = BroadcastInts(0x10101010);
    const Ints high = LoadInts(block + F::kLow);
    w[0] = Or(w[0], And(kSide == 0 ? ShiftLeft<4>(high) : high, fifth));
    w[1] = Or(w[1], And(kSide == 0 ? ShiftLeft<3>(high) : ShiftRight<1>(high), fifth));
    w[2] = Or(w[2], And(kSide == 0 ? ShiftLeft<2>(high) : ShiftRight<2>(high), fifth));
    w[3] = Or(w[3], And(kSide == 0 ? ShiftLeft<1>(high) : ShiftRight<3>(high), fifth));
  }
  if constexpr (F::kBits == 6) {  // bits 2 g, 2 g + 1 become bits 4, 5
    const Ints top = BroadcastInts(0x30303030);
    const Ints high = LoadInts(block + F::kLow + kSide * 64);
    w[0] = Or(w[0], And(ShiftLeft<4>(high), top));
    w[1] = Or(w[1], And(ShiftLeft<2>(high), top));
    w[2] = Or(w[2], And(high, top));
    w[3] = Or(w[3], And(ShiftRight<2>(high), top));
  }
}

// Scales of a block, of inputs 0 to 15 and 16 to 31 where these differ, and its minima.
struct BlockScales {
  Floats scale[2];
  Floats minimum;
};

template <class F>
inline BlockScales LoadScales(const std::uint8_t* scales, const Floats& unit_scale,
                              const Floats& unit_minimum) {
  BlockScales out;
  if constexpr (F::kBits == 6) {
    out.scale[0] = Multiply(unit_scale, SignedByteFloats(scales));
    out.scale[1] = Multiply(unit_scale, SignedByteFloats(scales + 16));
  } else if constexpr (F::kIsK) {
    out.scale[0] = Multiply(unit_scale, ByteFloats(scales));
    out.minimum = Multiply(unit_minimum, ByteFloats(scales + 16));
  } else {
    out.scale[0] = HalfFloats(scales);
    if constexpr (F::kHasMinimum) {
      out.minimum = HalfFloats(scales + 32);
    }
  }
  return out;
}

// Adds block b's part for one token.
template <class F>
inline void TakeBlock(const Ints (&w0)[4], const Ints (&w1)[4], const BlockScales& scales,
                      const RoundedInput& x, std::size_t b, Floats& acc) {
  const std::int8_t* bytes = x.bytes + b * 32;
  Floats dot0 = ToFloats(DotFour<F::kBits>(w0, bytes));
  Floats dot1 = ToFloats(DotFour<F::kBits>(w1, bytes + 16));
  const Floats input_scale = Broadcast(x.scales[b]);
  const float sum0 = x.sums[2 * b];
  const float sum1 = x.sums[2 * b + 1];
  if constexpr (F::kBits == 6) {
    dot0 = Add(dot0, Broadcast(-F::kCentre * sum0));
    dot1 = Add(dot1, Broadcast(-F::kCentre * sum1));
    const Floats both = MultiplyAdd(dot0, scales.scale[0], Multiply(dot1, scales.scale[1]));
    acc = MultiplyAdd(both, input_scale, acc);
    return;
  }
  Floats dot = Add(dot0, dot1);
  if constexpr (F::kHasMinimum) {
    const Floats both =
        MultiplyAdd(dot, scales.scale[0], Multiply(scales.minimum, Broadcast(sum0 + sum1)));
    acc = MultiplyAdd(both, input_scale, acc);
  } else {
    dot = Add(dot, Broadcast(-F::kCentre * (sum0 + sum1)));
    acc = MultiplyAdd(dot, Multiply(scales.scale[0], input_scale), acc);
  }
}

// Bytes that are fetched ahead of their use: the hardware's own prefetches end with a page of 4
// KiB.
constexpr std::size_t kAhead = 4096;

template <std::uint32_t kType, int kTokens>
void DotPanelOf(const std::uint8_t* panel, std::size_t blocks, const RoundedInput* x, float* out) {
  using F = Format<kType>;
  Floats acc[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    acc[t] = ZeroFloats();
  }
  Floats unit_scale = ZeroFloats();
  Floats unit_minimum = ZeroFloats();
  for (std::size_t b = 0; b < blocks; ++b) {
    if (F::kIsK && b % F::kBlocks == 0) {
      unit_scale = HalfFloats(panel);
      if constexpr (F::kHasMinimum) {
        unit_minimum = Negate(HalfFloats(panel + 32));
      }
      panel += F::kHeader;
    }
    for (std::size_t line = 0; line < F::kBlockBytes; line += 64) {
      __builtin_prefetch(panel + kAhead + line);
    }
    Ints w0[4];
    Ints w1[4];
    LoadHalf<F, 0>(panel, w0);
    LoadHalf<F, 1>(panel, w1);
    const BlockScales scales = LoadScales<F>(panel + F::kLow + F::kHigh, unit_scale, unit_minimum);
    for (int t = 0; t < kTokens; ++t) {
      TakeBlock<F>(w0, w1, scales, x[t], b, acc[t]);
    }
    panel += F::kBlockBytes;
  }
  for (int t = 0; t < kTokens; ++t) {
    StoreFloats(acc[t], out + t * 16);
  }
}

template <std::uint32_t kType>
void DotPanelTokens(const std::uint8_t* panel, std::size_t blocks, const RoundedInput* x,
                    std::int32_t tokens, float* out) {
  switch (tokens) {
    case 1:
      return DotPanelOf<kType, 1>(panel, blocks, x, out);
    case 2:
      return DotPanelOf<kType, 2>(panel, blocks, x, out);
    case 3:
      return DotPanelOf<kType, 3>(panel, blocks, x, out);
    default:
      return DotPanelOf<kType, 4>(panel, blocks, x, out);
  }
}

void DotPanel(std::uint32_t type, const std::byte* bytes, std::size_t blocks, const RoundedInput* x,
              std::int32_t tokens, float* out) {
  const auto* panel = reinterpret_cast<const std::uint8_t*>(bytes);
  switch (type) {
    case GGML_TYPE_Q4_0:
      return DotPanelTokens<GGML_TYPE_Q4_0>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q4_1:
      return DotPanelTokens<GGML_TYPE_Q4_1>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q5_0:
      return DotPanelTokens<GGML_TYPE_Q5_0>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q5_1:
      return DotPanelTokens<GGML_TYPE_Q5_1>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q4_K:
      return DotPanelTokens<GGML_TYPE_Q4_K>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q5_K:
      return DotPanelTokens<GGML_TYPE_Q5_K>(panel, blocks, x, tokens, out);
    case GGML_TYPE_Q6_K:
      return DotPanelTokens<GGML_TYPE_Q6_K>(panel, blocks, x, tokens, out);
    default:
      return DotPanelTokens<kWholeByteType>(panel, blocks, x, tokens, out);
  }
}

void RoundAll(const float* x, std::size_t in, std::int8_t* bytes, float* scales, float* sums) {
  for (std::size_t b = 0; b < in / 32; ++b) {
    RoundBlock(x + b * 32, bytes + b * 32, scales + b, sums + 2 * b);
  }
}
