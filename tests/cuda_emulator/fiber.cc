// How stacks are switched: by hand on x86-64, by the C library elsewhere.
#include "cuda_emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace ramify::cuda_emulator {
namespace {

constexpr size_t kPage = 64 << 10;  // the largest that systems have
constexpr size_t kStack = 128 << 10;

}  // namespace

Fiber::Fiber(int place) {
  void* memory = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPage, PROT_NONE);  // what overflows the stack ends here
  memory_ = static_cast<char*>(memory);
  top_ = memory_ + kPage + kStack - place % 32 * 192;
}

Fiber::~Fiber() {
  munmap(memory_, kPage + kStack);
}

#if defined(__x86_64__)

// swapcontext() takes 16 times as long: it sets the mask of signals. A jump, not a return, which would be predicted to
// go where the other stack was left.
extern "C" void ramify_switch_stacks(void** from, void* to);
asm(R"(
.text
.globl ramify_switch_stacks
.type ramify_switch_stacks, @function
ramify_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size ramify_switch_stacks, . - ramify_switch_stacks
)");

void Fiber::start(void (*function)()) {
  auto** stack = reinterpret_cast<void**>(top_ - 64);
  stack[6] = reinterpret_cast<void*>(function);  // above six registers
  stack[7] = nullptr;                            // where it would return to
  inside_ = stack;
}

void Fiber::resume() {
  ramify_switch_stacks(&outside_, inside_);
}

void Fiber::pause() {
  ramify_switch_stacks(&inside_, outside_);
}

#else

void Fiber::start(void (*function)()) {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = memory_ + kPage;
  inside_.uc_stack.ss_size = static_cast<size_t>(top_ - memory_) - kPage;
  inside_.uc_link = nullptr;
  makecontext(&inside_, function, 0);
}

void Fiber::resume() {
  swapcontext(&outside_, &inside_);
}

void Fiber::pause() {
  swapcontext(&inside_, &outside_);
}

#endif

}  // namespace ramify::cuda_emulator
