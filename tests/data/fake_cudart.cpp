// A CUDA runtime without a GPU, for tests: device memory is host memory, streams run at once, and the launch of a kernel K
// calls the program's own `extern "C" void emulate_K(void** arguments)`. Events read the host's clock, or, once a program
// sets `fake_milliseconds`, one that each launch moves on by that, give or take a little: a busy host cannot change it. Once
// `fake_error` is set, every wait for the GPU fails with it. With FAKE_CUDA_NO_GRAPH in the environment graphs cannot be
// captured.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>

namespace {
struct Call {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} call;
std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> names;
  return names;
}
cudaError_t last = cudaSuccess;
double passed = 0;
std::minstd_rand noise(getpid());
}  // namespace

extern "C" {
int fake_error = 0;
double fake_milliseconds = 0;
}

namespace {
double milliseconds() {
  if (fake_milliseconds > 0) return passed;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}
}  // namespace

extern "C" {
cudaError_t waited() { return static_cast<cudaError_t>(fake_error); }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "Emulated GPU");
  properties->major = 9;
  properties->l2CacheSize = 1 << 20;
  properties->totalGlobalMem = 1u << 30;
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(16 * i + i);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13030, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last;
  return last = cudaSuccess, error;
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }
const char* cudaGetErrorString(cudaError_t) { return "an emulated error"; }
cudaError_t cudaMalloc(void** memory, size_t size) { return *memory = std::malloc(size), cudaSuccess; }
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) { return std::memcpy(to, from, size), cudaSuccess; }
// The buffer that only flushes a cache is large, and here there is no cache.
cudaError_t cudaMemsetAsync(void* memory, int value, size_t size, cudaStream_t) {
  if (value != 0) std::memset(memory, value, size);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return waited(); }
cudaError_t cudaDeviceSynchronize() { return waited(); }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = reinterpret_cast<cudaEvent_t>(new double(0)), cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<double*>(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return *reinterpret_cast<double*>(event) = milliseconds(), cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventElapsedTime(float* time, cudaEvent_t start, cudaEvent_t end) {
  *time = static_cast<float>(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(start));
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return std::getenv("FAKE_CUDA_NO_GRAPH") != nullptr ? cudaErrorNotSupported : cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) { return *graph = nullptr, cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) { return *graph = nullptr, cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

// What nvcc's code calls.
void** __cudaRegisterFatBinary(void*) { return nullptr; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  return call = {grid, block, shared, stream}, 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = call.grid, *block = call.block, *shared = call.shared;
  *static_cast<cudaStream_t*>(stream) = call.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host)), cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t, cudaStream_t) {
  const std::string name = "emulate_" + kernels().at(kernel);
  const auto emulate = reinterpret_cast<void (*)(void**)>(dlsym(RTLD_DEFAULT, name.c_str()));
  if (emulate == nullptr) return last = cudaErrorInvalidDeviceFunction;
  emulate(arguments);
  const double took = fake_milliseconds * std::uniform_real_distribution<double>(0.999, 1.001)(noise);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(took));
  passed += took;
  return cudaSuccess;
}
}
