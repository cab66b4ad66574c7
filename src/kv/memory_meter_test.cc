#include "kv/memory_meter.h"

#include <gtest/gtest.h>

namespace rkv::kv {
namespace {

TEST(MemoryMeter, PeakIsOfTheSumAtOneMoment) {
  MemoryMeter meter;
  meter.AddRows(100);
  meter.SubRows(60);
  meter.AddIndex(50);
  EXPECT_EQ(meter.row_bytes(), 40u);
  EXPECT_EQ(meter.index_bytes(), 50u);
  EXPECT_EQ(meter.bytes(), 90u);
  EXPECT_EQ(meter.peak_bytes(), 100u);
  meter.AddRows(20);
  EXPECT_EQ(meter.peak_bytes(), 110u);
}

TEST(MemoryMeter, ANewPeakStartsAtWhatIsHeld) {
  MemoryMeter meter;
  meter.AddIndex(80);
  meter.SubIndex(70);
  meter.ResetPeak();
  EXPECT_EQ(meter.peak_bytes(), 10u);
  meter.AddRows(5);
  EXPECT_EQ(meter.peak_bytes(), 15u);
}

}  // namespace
}  // namespace rkv::kv
