/* Run a kernel that translate.py turned from PTX to C (KERNEL), with a fiber for each thread.

   Threads of a block run one after another, each up to the next barrier. Each access to memory is
   checked; what a check finds ends the launch with a message. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { MAX_THREADS = 1024, STACK = 256 << 10, TABLE = 1 << 21 };
enum { READ, WRITE };
enum { UNWRITTEN = 0x7E }; /* A byte of shared memory that nobody wrote: of 8.5e37 as a float. */
enum { READ_ONLY, ONE_WRITER, ANY_WRITER };
enum { STEPS, LOADS, STORES, SHARED, SECTORS, NUM_COUNTS };

typedef struct { uint64_t begin, end, mode, owners, readers; } Region;
typedef struct { uint32_t tid[3], ctaid[3], ntid[3], nctaid[3]; } Place;

static const Region *regions;
static int num_regions, last_region, with_sectors, failed;
static char *message;
static uint64_t *counts;
static uint32_t lane, threads, epoch;
static uint64_t block_number;

static void fail(const char *what, uint64_t at, int line) {
  if (!failed)
    snprintf(message, 200, "%s at %#lx, PTX line %d, block %lu, thread %u", what, (long)at, line,
             (long)block_number, lane);
  failed = 1;
}

/* ---- Registers: 64 bits each, read and written as the type of the instruction -------------- */

#define INTEGER(T, C) typedef C T; static inline T as_##T(uint64_t r) { return (T)r; } \
  static inline uint64_t put_##T(T x) { return (uint64_t)(int64_t)x; }
#define FLOAT(T, C, B) typedef C T; \
  static inline T as_##T(uint64_t r) { B b = (B)r; C x; memcpy(&x, &b, sizeof x); return x; } \
  static inline uint64_t put_##T(T x) { B b; memcpy(&b, &x, sizeof b); return b; }
INTEGER(s8, int8_t) INTEGER(s16, int16_t) INTEGER(s32, int32_t) INTEGER(s64, int64_t)
INTEGER(u8, uint8_t) INTEGER(u16, uint16_t) INTEGER(u32, uint32_t) INTEGER(u64, uint64_t)
INTEGER(b8, uint8_t) INTEGER(b16, uint16_t) INTEGER(b32, uint32_t) INTEGER(b64, uint64_t)
INTEGER(pred, _Bool) FLOAT(f32, float, uint32_t) FLOAT(f64, double, uint64_t)

/* A NaN becomes 0 where all is of 32 bits, else the lowest number; the rest saturates. */
#define SATURATE(T, LOW, HIGH, LIMIT) static inline T to_##T(double x, int narrow) { \
  if (x != x) return narrow ? 0 : (T)1 << (8 * sizeof(T) - 1); \
  return x >= LIMIT ? HIGH : x <= (double)LOW ? LOW : (T)x; }
SATURATE(s32, INT32_MIN, INT32_MAX, 0x1p31) SATURATE(s64, INT64_MIN, INT64_MAX, 0x1p63)
SATURATE(u32, 0, UINT32_MAX, 0x1p32) SATURATE(u64, 0, UINT64_MAX, 0x1p64)

/* By -1 as by 1, since a processor would trap where the quotient overflows. */
#define DIVIDE(T, a, op, b, line) ((b) == 0 ? (fail("division by zero", 0, line), (a)) \
  : (T)-1 < (T)1 && (b) == (T)-1 ? (0 - (a)) op 1 : (a) op (b))

static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t both = (uint64_t)b << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) {
    uint32_t which = selector >> 4 * i, byte = both >> 8 * (which & 7) & 255;
    out |= (which & 8 ? byte & 128 ? 255 : 0 : byte) << 8 * i;
  }
  return out;
}

static inline uint64_t bfi(uint64_t field, uint64_t into, uint32_t at, uint32_t length) {
  uint64_t mask = length < 64 ? ((uint64_t)1 << length) - 1 : UINT64_MAX;
  return at < 64 ? (into & ~(mask << at)) | (field & mask) << at : into;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static int global(uint64_t at, int size, int access, int line);

#define LOAD(target, T, space, address, line) { uint64_t at = address; \
  if (!space(at, sizeof(T), READ, line)) return; target = put_##T(*(const T *)at); }
#define STORE(T, space, address, value, line) { uint64_t at = address; \
  if (!space(at, sizeof(T), WRITE, line)) return; *(T *)at = value; }

static int shared(uint64_t at, int size, int access, int line);
static void count_sector(uint64_t at, int line);
static void barrier(int line);

#include KERNEL

enum { SEVERAL = UINT32_MAX };

static void share(const Region *r, uint64_t at, int size, int access, int line);

/* An address may be so large that at + size is 0 again. */
static int lies_in(const Region *r, uint64_t at, uint64_t size) {
  return r->begin <= at && at <= r->end && size <= r->end - at;
}

static int find_region(uint64_t at, int size) {
  if (num_regions && lies_in(&regions[last_region], at, size)) return 1;
  for (int i = 0; i < num_regions; i++)
    if (lies_in(&regions[i], at, size)) { last_region = i; return 1; }
  return 0;
}

static int global(uint64_t at, int size, int access, int line) {
  if (at - (uint64_t)shared_memory < SHARED_BYTES) return shared(at, size, access, line);
  counts[access == WRITE ? STORES : LOADS]++;
  if (at % size) { fail("misaligned access", at, line); return 0; }
  if (!find_region(at, size)) {
    fail(access == WRITE ? "write out of bounds" : "read out of bounds", at, line);
    return 0;
  }
  if (with_sectors) count_sector(at, line);
  const Region *r = &regions[last_region];
  if (r->mode != READ_ONLY) share(r, at, size, access, line);
  else if (access == WRITE) { fail("write to an input", at, line); return 0; }
  return 1;
}

/* Blocks run in any order, and the caches of two of them may differ: no block may read what another
   one writes. By byte: the thread that wrote it, and the block that read it. */
static void share(const Region *r, uint64_t at, int size, int access, int line) {
  uint32_t *owners = (uint32_t *)r->owners + (at - r->begin);
  uint32_t *readers = (uint32_t *)r->readers + (at - r->begin);
  uint32_t me = block_number * threads + lane + 1, block = block_number + 1;
  for (int i = 0; i < size; i++) {
    if (access == READ) {
      if (owners[i] && (owners[i] - 1) / threads != block_number)
        fail("read of what another block wrote", at, line);
      readers[i] = readers[i] && readers[i] != block ? SEVERAL : block;
      continue;
    }
    if (readers[i] && readers[i] != block) fail("write of what another block read", at, line);
    if (r->mode == ONE_WRITER && owners[i] && owners[i] != me)
      fail("written by two threads", at, line);
    owners[i] = me;
  }
}

/* By byte: when it was last written and read, as an epoch between barriers, and by which lane. */
static uint32_t written[SHARED_BYTES + 1], was_read[SHARED_BYTES + 1];
static uint32_t writer[SHARED_BYTES + 1], reader[SHARED_BYTES + 1];

static int shared(uint64_t at, int size, int access, int line) {
  uint64_t offset = at - (uint64_t)shared_memory;
  counts[SHARED]++;
  if (offset >= SHARED_BYTES || size > SHARED_BYTES - offset) { fail("shared memory out of bounds", offset, line); return 0; }
  if (offset % size) { fail("misaligned access to shared memory", offset, line); return 0; }
  for (uint64_t i = offset; i < offset + size; i++) {
    int others = was_read[i] == epoch && reader[i] != lane;
    if ((written[i] == epoch && writer[i] != lane) || (access == WRITE && others))
      fail("race in shared memory", offset, line);
    if (access == WRITE) { written[i] = epoch; writer[i] = lane; }
    else { was_read[i] = epoch; reader[i] = others ? MAX_THREADS : lane; }
  }
  return 1;
}

static uint64_t *sectors;
static uint32_t *times, num_sectors;

/* Count 32 bytes once for each access of a warp: that of its threads' n-th time at a line. */
static void count_sector(uint64_t at, int line) {
  uint64_t time = times[lane * NUM_LINES + line]++;
  uint64_t key = ((time * NUM_LINES + line) * 32 + lane / 32 + 1) << 32 | (uint32_t)(at >> 5);
  uint64_t place = key * 0x9E3779B97F4A7C15ull >> 43;
  while (sectors[place] && sectors[place] != key) place = (place + 1) % TABLE;
  if (sectors[place]) return;
  sectors[place] = key;
  counts[SECTORS]++;
  if (++num_sectors > TABLE / 2) fail("too many accesses of a block to count", at, line);
}

/* ---- Threads ------------------------------------------------------------------------------- */

static ucontext_t scheduler, fibers[MAX_THREADS];
static int done[MAX_THREADS], waits_at[MAX_THREADS];
static Place places[MAX_THREADS];
static const uint64_t *arguments;

static void barrier(int line) {
  waits_at[lane] = line;
  swapcontext(&fibers[lane], &scheduler);
}

static void thread(void) {
  kernel(arguments, &places[lane]);
  done[lane] = 1;
  swapcontext(&fibers[lane], &scheduler);
}

static void prepare(const uint32_t *grid, const uint32_t *block, char *stacks) {
  for (uint32_t t = 0, rest; t < threads; t++) {
    uint64_t number = block_number;
    rest = t;
    for (int axis = 0; axis < 3; axis++) {
      places[t].ntid[axis] = block[axis], places[t].nctaid[axis] = grid[axis];
      places[t].tid[axis] = rest % block[axis], rest /= block[axis];
      places[t].ctaid[axis] = number % grid[axis], number /= grid[axis];
    }
    done[t] = 0;
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = stacks + (uint64_t)t * STACK;
    fibers[t].uc_stack.ss_size = STACK;
    makecontext(&fibers[t], thread, 0);
  }
  memset(shared_memory, UNWRITTEN, SHARED_BYTES);
  if (with_sectors) {
    memset(sectors, 0, TABLE * sizeof *sectors), num_sectors = 0;
    memset(times, 0, threads * NUM_LINES * sizeof *times);
  }
}

/* Run all threads to the next barrier; return how many wait there. */
static uint32_t run_to_barrier(void) {
  uint32_t waiting = 0, ended = 0;
  int line = 0;
  epoch++;
  for (uint32_t t = 0; t < threads && !failed; t++) {
    if (!done[t]) { lane = t; swapcontext(&scheduler, &fibers[t]); }
    ended += done[t];
    if (done[t]) continue;
    if (waiting++ && waits_at[t] != line) fail("threads wait at two barriers", 0, waits_at[t]);
    line = waits_at[t];
  }
  if (waiting && ended) fail("threads ended before a barrier", 0, line);
  return waiting;
}

/* Run some blocks; return 0, or 1 with a message. */
int run(const uint32_t *grid, const uint32_t *block, const uint64_t *blocks, uint64_t num_blocks,
        const uint64_t *args, const Region *memory, int num_memory, int count_sectors,
        uint64_t *counted, char *told) {
  regions = memory, num_regions = num_memory, last_region = 0, with_sectors = count_sectors;
  arguments = args, counts = counted, message = told, failed = 0;
  threads = block[0] * block[1] * block[2];
  char *stacks = malloc((uint64_t)threads * STACK);
  sectors = malloc(TABLE * sizeof *sectors), times = malloc(threads * NUM_LINES * sizeof *times);
  for (uint64_t i = 0; i < num_blocks && !failed; i++) {
    block_number = blocks[i];
    prepare(grid, block, stacks);
    while (run_to_barrier() && !failed) {}
  }
  free(stacks), free(sectors), free(times);
  return failed;
}
