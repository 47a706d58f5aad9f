// boosterrun.cuh: makes a CUDA program a resident worker of boosterrun. C++17, CUDA runtime, nothing else.
//
//   #include <boosterrun.cuh>
//
//   __global__ void scale(const float* x, float* y, int n) { ... }
//
//   BOOSTERRUN_CASE(scale) {                      // gets `shape` (from the YAML) and `seed`; returns a Case
//     const int n = shape.integer("n");
//     boosterrun::Random random(seed);
//     const auto x = random.normal<float>(n);     // on the host
//     boosterrun::Buffer<float> in(x), out(n);    // on the GPU, freed with the case
//     boosterrun::Case kernel;
//     kernel.run = [=](cudaStream_t stream) { scale<<<(n + 255) / 256, 256, 0, stream>>>(in.data(), out.data(), n); };
//     kernel.output("y", out, [x] { return std::vector<double>(x.begin(), x.end()); }, 1e-6);
//     return kernel;
//   }
//
// `run` launches once on the given stream: it must not change its inputs, must write the whole output each time, and
// must not wait for the GPU. References run on the host: code compiled with the ACF cannot judge itself. By hand:
// `./program n=1000000` checks once and times a few launches.
#pragma once

#include <cuda_runtime.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace boosterrun {

// ---- errors ---------------------------------------------------------------------------------------------------------

// The case, the shape or a request makes no sense; the message says what to change.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A call of the CUDA runtime failed.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const char* call, const char* file, int line)
      : Error(std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code) + ", at " + call + " (" + file + ":" +
              std::to_string(line) + ")"),
        code(code) {}
  cudaError_t code;
};

#define BOOSTERRUN_CUDA(call)                                                                     \
  do {                                                                                            \
    const cudaError_t boosterrun_code = (call);                                                   \
    if (boosterrun_code != cudaSuccess)                                                           \
      throw ::boosterrun::CudaError(boosterrun_code, #call, __FILE__, __LINE__);                  \
  } while (false)

// ---- JSON -----------------------------------------------------------------------------------------------------------

// One JSON value. Numbers keep their text, so that 64-bit integers survive.
class Json {
 public:
  enum class Kind { null, boolean, number, string, array, object };

  Json() = default;
  Json(bool value) : kind_(Kind::boolean), flag_(value) {}
  Json(double value) : kind_(Kind::number) {
    if (!std::isfinite(value)) {  // JSON has no such number: as text
      kind_ = Kind::string;
      text_ = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
      return;
    }
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    text_ = digits;
  }
  template <typename T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value, int> = 0>
  Json(T value) : kind_(Kind::number), text_(std::to_string(value)) {}
  Json(const char* value) : kind_(Kind::string), text_(value) {}
  Json(std::string value) : kind_(Kind::string), text_(std::move(value)) {}

  static Json array() { return Json(Kind::array); }
  static Json object() { return Json(Kind::object); }

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }

  void append(Json value) { items_.push_back(std::move(value)); }
  Json& operator[](const std::string& key) { return members_[key]; }
  const Json* find(const std::string& key) const {
    const auto found = members_.find(key);
    return found == members_.end() ? nullptr : &found->second;
  }
  // The member `key`; throws Error when there is none.
  const Json& at(const std::string& key) const {
    const Json* found = find(key);
    if (found == nullptr) throw Error("there is no \"" + key + "\" in " + print().substr(0, 200));
    return *found;
  }
  const std::map<std::string, Json>& members() const { return members_; }
  const std::vector<Json>& items() const { return items_; }

  bool boolean() const {
    require(Kind::boolean, "true or false");
    return flag_;
  }
  double number() const {
    require(Kind::number, "a number");
    return std::strtod(text_.c_str(), nullptr);
  }
  std::int64_t integer() const {
    require(Kind::number, "a whole number");
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text_.c_str(), &end, 10);
    if (*end == '\0' && errno == 0) return value;
    const double wide = number();  // 1e6 is whole as well
    if (*end == '\0' || wide != std::floor(wide) || std::fabs(wide) > 9e15) throw Error(text_ + " is not a whole number of 64 bits");
    return static_cast<std::int64_t>(wide);
  }
  const std::string& string() const {
    require(Kind::string, "a text");
    return text_;
  }
  // A seed of any size and sign.
  std::uint64_t bits() const {
    require(Kind::number, "a whole number");
    return std::strtoull(text_.c_str(), nullptr, 10);
  }

  std::string print() const {
    switch (kind_) {
      case Kind::null: return "null";
      case Kind::boolean: return flag_ ? "true" : "false";
      case Kind::number: return text_;
      case Kind::string: return quoted(text_);
      case Kind::array: {
        std::string out = "[";
        for (const Json& item : items_) out += (out.size() > 1 ? "," : "") + item.print();
        return out + "]";
      }
      case Kind::object: break;
    }
    std::string out = "{";
    for (const auto& member : members_) out += (out.size() > 1 ? "," : "") + quoted(member.first) + ":" + member.second.print();
    return out + "}";
  }

  // Parses one whole document; throws Error.
  static Json parse(const std::string& text) {
    Parser parser{text.c_str(), text.c_str(), text.c_str() + text.size()};
    Json value = parser.value(0);
    parser.space();
    if (parser.at != parser.end) parser.fail("something follows the value");
    return value;
  }

 private:
  explicit Json(Kind kind) : kind_(kind) {}

  void require(Kind kind, const char* what) const {
    if (kind_ != kind) throw Error(print().substr(0, 200) + " is not " + what);
  }

  // What is not ASCII becomes '?': a message of the user's need not be UTF-8, but a line of the protocol must be.
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char letter : text) {
      const unsigned char code = static_cast<unsigned char>(letter);
      char escape[8];
      if (letter == '"' || letter == '\\') {
        out += '\\';
        out += letter;
      } else if (code < 0x20) {
        std::snprintf(escape, sizeof escape, "\\u%04x", code);
        out += escape;
      } else {
        out += code < 0x80 ? letter : '?';
      }
    }
    return out + "\"";
  }

  struct Parser {
    const char* begin;
    const char* at;
    const char* end;

    [[noreturn]] void fail(const std::string& what) const {
      throw Error("not JSON at character " + std::to_string(at - begin) + ": " + what);
    }
    void space() {
      while (at != end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    }
    char peek() {
      space();
      if (at == end) fail("it ends too early");
      return *at;
    }
    void expect(char letter) {
      if (peek() != letter) fail(std::string("expected ") + letter);
      ++at;
    }
    bool word(const char* text) {
      const std::size_t size = std::strlen(text);
      if (static_cast<std::size_t>(end - at) < size || std::strncmp(at, text, size) != 0) return false;
      at += size;
      return true;
    }
    Json value(int depth) {
      if (depth > 64) fail("it is nested too deeply");
      switch (peek()) {
        case '{': return members(depth);
        case '[': return items(depth);
        case '"': return Json(text());
        default: break;
      }
      if (word("null")) return Json();
      if (word("true")) return Json(true);
      if (word("false")) return Json(false);
      return digits();
    }
    Json digits() {
      const char* from = at;
      if (at != end && *at == '-') ++at;
      if (at == end || *at < '0' || *at > '9') fail("expected a value");
      while (at != end && std::strchr("0123456789+-.eE", *at) != nullptr && *at != '\0') ++at;
      Json number(Kind::number);
      number.text_.assign(from, at);
      char* stop = nullptr;
      const double value = std::strtod(number.text_.c_str(), &stop);
      if (*stop != '\0' || !std::isfinite(value)) fail(number.text_ + " is no number");
      return number;
    }
    Json items(int depth) {
      Json list = array();
      expect('[');
      if (peek() == ']') return ++at, list;
      while (true) {
        list.items_.push_back(value(depth + 1));
        if (peek() == ']') return ++at, list;
        expect(',');
      }
    }
    Json members(int depth) {
      Json map = object();
      expect('{');
      if (peek() == '}') return ++at, map;
      while (true) {
        peek();
        std::string key = text();
        expect(':');
        map.members_[std::move(key)] = value(depth + 1);
        if (peek() == '}') return ++at, map;
        expect(',');
      }
    }
    std::string text() {
      expect('"');
      std::string out;
      while (true) {
        if (at == end) fail("a text does not end");
        const char letter = *at++;
        if (letter == '"') return out;
        if (static_cast<unsigned char>(letter) < 0x20) fail("a control character in a text");
        if (letter != '\\') {
          out += letter;
          continue;
        }
        if (at == end) fail("a text does not end");
        const char escape = *at++;
        switch (escape) {
          case '"': case '\\': case '/': out += escape; break;
          case 'b': out += '\b'; break;
          case 'f': out += '\f'; break;
          case 'n': out += '\n'; break;
          case 'r': out += '\r'; break;
          case 't': out += '\t'; break;
          case 'u': utf8(out, code_point()); break;
          default: fail("an unknown escape");
        }
      }
    }
    unsigned four() {
      unsigned code = 0;
      for (int i = 0; i < 4; ++i, ++at) {
        const char* hex = "0123456789abcdef";
        const char* found = at == end ? nullptr : std::strchr(hex, *at | 0x20);
        if (found == nullptr || *found == '\0') fail("\\u needs four hexadecimal digits");
        code = code * 16 + static_cast<unsigned>(found - hex);
      }
      return code;
    }
    unsigned code_point() {
      const unsigned high = four();
      if (high < 0xD800 || high > 0xDBFF || !word("\\u")) return high;
      return 0x10000 + ((high - 0xD800) << 10) + ((four() - 0xDC00) & 0x3FF);
    }
    static void utf8(std::string& out, unsigned code) {
      const auto add = [&out](unsigned byte) { out += static_cast<char>(byte); };
      if (code < 0x80) return add(code);
      if (code < 0x800) return add(0xC0 | code >> 6), add(0x80 | (code & 0x3F));
      if (code >= 0x10000) {
        add(0xF0 | code >> 18);
        add(0x80 | (code >> 12 & 0x3F));
      } else {
        add(0xE0 | code >> 12);
      }
      add(0x80 | (code >> 6 & 0x3F));
      add(0x80 | (code & 0x3F));
    }
  };

  Kind kind_ = Kind::null;
  bool flag_ = false;
  std::string text_;
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

// ---- what a case is made from -----------------------------------------------------------------------------------------

// The parameters of one shape, as the YAML says them. Each getter throws Error for a missing one without fallback, and
// for one of another type.
class Shape {
 public:
  explicit Shape(Json params) : params_(std::move(params)) {}

  std::int64_t integer(const std::string& name) const { return get(name).integer(); }
  std::int64_t integer(const std::string& name, std::int64_t fallback) const { return has(name) ? integer(name) : fallback; }
  double real(const std::string& name) const { return get(name).number(); }
  double real(const std::string& name, double fallback) const { return has(name) ? real(name) : fallback; }
  bool boolean(const std::string& name, bool fallback) const { return has(name) ? get(name).boolean() : fallback; }
  std::string text(const std::string& name) const { return get(name).string(); }
  std::string text(const std::string& name, const std::string& fallback) const { return has(name) ? text(name) : fallback; }
  bool has(const std::string& name) const { return params_.find(name) != nullptr; }

  // A whole number above zero that `of` divides: kernels without bounds checks need it.
  int multiple(const std::string& name, int of) const {
    const std::int64_t value = integer(name);
    if (value <= 0 || value % of != 0 || value > std::numeric_limits<int>::max())
      throw Error("shape: " + name + " is " + std::to_string(value) + ", not a multiple of " + std::to_string(of) + " above 0");
    return static_cast<int>(value);
  }

 private:
  const Json& get(const std::string& name) const {
    const Json* found = params_.find(name);
    if (found == nullptr) throw Error("the shape has no " + name + ": add it in the workload's YAML");
    return *found;
  }
  Json params_;
};

// Calls body(begin, end) for parts of 0..count on all cores of the host. An exception of a part is thrown again.
inline void parallel(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body) {
  const std::size_t threads = std::max<std::size_t>(1, std::min<std::size_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::thread> pool;
  for (std::size_t part = 0; part < threads; ++part)
    pool.emplace_back([&, part] {
      try {
        body(count * part / threads, count * (part + 1) / threads);
      } catch (...) {
        failures[part] = std::current_exception();
      }
    });
  for (std::thread& thread : pool) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Seeded inputs on the host; every array of one Random is another stream, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  template <typename T>
  std::vector<T> normal(std::size_t count, double deviation = 1, double mean = 0) {
    return filled<T>(count, [=](std::uint64_t key) {
      const double radius = std::sqrt(-2 * std::log(1 - unit(mix(key))));
      return mean + deviation * radius * std::cos(6.283185307179586 * unit(mix(~key)));
    });
  }
  template <typename T>
  std::vector<T> uniform(std::size_t count, double low = 0, double high = 1) {
    return filled<T>(count, [=](std::uint64_t key) { return low + (high - low) * unit(mix(key)); });
  }

 private:
  template <typename T, typename F>
  std::vector<T> filled(std::size_t count, F value) {
    const std::uint64_t base = mix(seed_ ^ mix(++stream_));
    std::vector<T> out(count);
    parallel(count, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const double number = value(base + i * 0x9E3779B97F4A7C15u);
        if constexpr (std::is_arithmetic<T>::value) out[i] = static_cast<T>(number);
        else out[i] = T(static_cast<float>(number));
      }
    });
    return out;
  }
  static std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }
  static double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

  std::uint64_t seed_;
  std::uint64_t stream_ = 0;
};

// An array on the GPU; copies share it, the last one frees it.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    void* memory = nullptr;
    BOOSTERRUN_CUDA(cudaMalloc(&memory, std::max<std::size_t>(1, count) * sizeof(T)));
    memory_.reset(static_cast<T*>(memory), [](T* pointer) { cudaFree(pointer); });
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    BOOSTERRUN_CUDA(cudaMemcpy(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
    // The copy may return before its last part has arrived, and our stream does not wait for it.
    BOOSTERRUN_CUDA(cudaDeviceSynchronize());
  }
  T* data() const { return memory_.get(); }
  std::size_t size() const { return count_; }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    BOOSTERRUN_CUDA(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  std::shared_ptr<T> memory_;
};

// ---- outputs ----------------------------------------------------------------------------------------------------------

template <typename T>
double to_double(T value) {
  if constexpr (std::is_arithmetic<T>::value) return static_cast<double>(value);
  else return static_cast<double>(static_cast<float>(value));
}

// What is known of an element type, the small floating-point types of CUDA's headers included.
struct Type {
  std::string name;
  double tolerance;  // largest relative norm of the error by default
  bool exact;

  template <typename T>
  static Type of() {
    const std::string bits = std::to_string(8 * sizeof(T));
    if constexpr (std::is_integral<T>::value) return {(std::is_unsigned<T>::value ? "uint" : "int") + bits, 0, true};
    else if constexpr (std::is_same<T, double>::value) return {"float64", 1e-10, false};
    else if constexpr (std::is_same<T, float>::value) return {"float32", 1e-5, false};
    else if constexpr (sizeof(T) == 1) return {"float8", 0.1, false};
    // 1 + 2^-8 is a number of half precision, but not of bfloat16.
    else if (to_double(T(1.00390625f)) == 1.00390625) return {"float16", 3e-3, false};
    else return {"bfloat16", 1e-2, false};
  }
};

// Compares an output with its reference; returns the record of it, whose "message" is empty when it passes. A NaN or an
// infinity passes only where the reference has the same infinity.
inline Json compare(const std::string& name, const Type& type, double tolerance, const std::vector<double>& output,
                    const std::vector<double>& reference) {
  Json record = Json::object();
  record["name"] = name;
  record["dtype"] = type.name;
  Json shape = Json::array();
  shape.append(output.size());
  record["shape"] = shape;
  const auto verdict = [&record](const std::string& message) { return record["message"] = message, record; };
  if (output.size() != reference.size())
    return verdict("it has " + std::to_string(output.size()) + " elements, the reference has " + std::to_string(reference.size()));
  if (reference.empty()) return verdict("the reference is empty: nothing was compared");
  double squares = 0;
  std::size_t count = 0;
  for (const double value : reference)
    if (std::isfinite(value)) squares += value * value, ++count;
  const bool exact = type.exact && tolerance == 0;
  const double relative_bound = exact ? 0 : 10 * tolerance;
  const double absolute_bound = count > 0 ? relative_bound * std::sqrt(squares / static_cast<double>(count)) : 0;
  double error_squares = 0, largest = 0;
  std::size_t off = 0, lost = 0, undefined = 0, first = output.size();
  for (std::size_t i = 0; i < output.size(); ++i) {
    bool bad = false;
    if (std::isfinite(reference[i]) && std::isfinite(output[i])) {
      const double error = std::fabs(output[i] - reference[i]);
      bad = !(error <= absolute_bound + relative_bound * std::fabs(reference[i]));
      error_squares += error * error;
      largest = std::max(largest, error);
    } else {
      bad = output[i] != reference[i];  // also true for a NaN on either side
      lost += bad;
      undefined += std::isnan(reference[i]);
    }
    off += bad;
    if (bad && first == output.size()) first = i;
  }
  const double relative = squares > 0 ? std::sqrt(error_squares / squares) : error_squares == 0 ? 0 : INFINITY;
  record["relative_error"] = relative;
  record["tolerance"] = tolerance;
  record["largest_error"] = largest;
  record["elements_off"] = off;
  record["nonfinite"] = lost;
  if (first != output.size()) {
    Json index = Json::array();
    index.append(first);
    record["first_bad_index"] = index;
    record["expected"] = reference[first];
    record["actual"] = output[first];
  }
  char words[160] = "";
  if (undefined > 0) std::snprintf(words, sizeof words, "the reference itself has %zu NaN", undefined);
  else if (lost > 0) std::snprintf(words, sizeof words, "%zu elements are NaN or infinite where the reference is not", lost);
  else if (exact && off > 0) std::snprintf(words, sizeof words, "%zu elements differ", off);
  else if (!(relative <= tolerance)) std::snprintf(words, sizeof words, "relative error %.3g is above %.3g", relative, tolerance);
  else if (off > 0)
    std::snprintf(words, sizeof words, "%zu elements are off by more than %.3g + %.3g * |reference|", off, absolute_bound, relative_bound);
  return verdict(words);
}

using Reference = std::function<std::vector<double>()>;

// One output, its element type forgotten.
struct Output {
  std::string name;
  Type type;
  double tolerance;
  Reference reference;
  std::function<std::vector<double>()> download;
  void* memory;
  std::size_t bytes;
};

// One kernel on one shape.
struct Case {
  // Launches the kernel once on the stream.
  std::function<void(cudaStream_t)> run;
  std::vector<Output> outputs;
  // Floating-point operations and bytes moved per launch, for reports.
  double flops = 0, bytes = 0;

  // Declares an array that `run` writes. `reference` returns the right values from an independent computation on the
  // host. `tolerance`: largest relative norm |out - ref| / |ref| (by the type when negative; whole numbers must be
  // equal); an element may be off by ten tolerances of its size plus the root mean square. `post` turns the downloaded
  // array into what `reference` returns.
  template <typename T>
  Case& output(const std::string& name, const Buffer<T>& buffer, Reference reference, double tolerance = -1,
               std::function<std::vector<double>(const std::vector<T>&)> post = nullptr) {
    const Type type = Type::of<T>();
    auto download = [buffer, post] {
      const std::vector<T> values = buffer.download();
      if (post) return post(values);
      std::vector<double> wide(values.size());
      std::transform(values.begin(), values.end(), wide.begin(), [](T value) { return to_double(value); });
      return wide;
    };
    outputs.push_back({name, type, tolerance < 0 ? type.tolerance : tolerance, std::move(reference), std::move(download), buffer.data(),
                       buffer.size() * sizeof(T)});
    return *this;
  }
};

using Make = Case (*)(const Shape& shape, std::uint64_t seed);

inline std::map<std::string, Make>& registry() {
  static std::map<std::string, Make> cases;
  return cases;
}

struct Registration {
  Registration(const char* name, Make make) { registry()[name] = make; }
};

#define BOOSTERRUN_CASE(name)                                                                                           \
  static ::boosterrun::Case boosterrun_case_##name(const ::boosterrun::Shape& shape, std::uint64_t seed);                \
  static const ::boosterrun::Registration boosterrun_registration_##name{#name, boosterrun_case_##name};                \
  static ::boosterrun::Case boosterrun_case_##name([[maybe_unused]] const ::boosterrun::Shape& shape,                   \
                                                   [[maybe_unused]] std::uint64_t seed)

// ---- running and timing -------------------------------------------------------------------------------------------------

// An event, or a stream, or a graph: whatever the runtime creates and destroys.
struct Event {
  Event() { BOOSTERRUN_CUDA(cudaEventCreate(&handle)); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle = nullptr;
};

struct Graph {
  std::size_t launches = 0;
  cudaGraphExec_t handle = nullptr;
  std::vector<std::unique_ptr<Event>> events;
  ~Graph() {
    if (handle != nullptr) cudaGraphExecDestroy(handle);
  }
};

// The GPU, a stream, and a buffer larger than its L2 cache.
class Device {
 public:
  Device() {
    int count = 0;
    BOOSTERRUN_CUDA(cudaGetDeviceCount(&count));
    if (count == 0) throw Error("there is no CUDA device");
    BOOSTERRUN_CUDA(cudaSetDevice(0));
    BOOSTERRUN_CUDA(cudaGetDeviceProperties(&properties, 0));
    BOOSTERRUN_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void wait() const { BOOSTERRUN_CUDA(cudaStreamSynchronize(stream)); }

  std::size_t flush_bytes() const { return std::max<std::size_t>(std::size_t{256} << 20, 2 * static_cast<std::size_t>(properties.l2CacheSize)); }

  // Writes more than the L2 cache holds: nothing of the inputs is left there.
  void flush() {
    if (!buffer_) buffer_ = std::make_unique<Buffer<unsigned char>>(flush_bytes());
    BOOSTERRUN_CUDA(cudaMemsetAsync(buffer_->data(), 0, buffer_->size(), stream));
  }

  Json describe() const {
    Json device = Json::object();
    device["index"] = 0;
    device["name"] = std::string(properties.name);
    device["compute_capability"] = std::to_string(properties.major) + "." + std::to_string(properties.minor);
    device["memory_bytes"] = properties.totalGlobalMem;
    device["l2_bytes"] = properties.l2CacheSize;
    std::string uuid = "GPU";
    for (int i = 0; i < 16; ++i) {
      char digits[4];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
      uuid += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(digits);
    }
    device["uuid"] = uuid;
    return device;
  }

  cudaDeviceProp properties{};
  cudaStream_t stream = nullptr;

 private:
  std::unique_ptr<Buffer<unsigned char>> buffer_;
};

// A case with the references of its first moment: a kernel gone astray cannot foul them later.
class Kept {
 public:
  Kept(Case made, Device& device) : case_(std::move(made)), device_(device) {
    if (!case_.run) throw Error("the case has no run");
    for (const Output& output : case_.outputs) references_.push_back(output.reference());
  }
  // Work of a lost case may still be running: its memory must outlive it.
  ~Kept() { cudaStreamSynchronize(device_.stream); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  const Case& kernel() const { return case_; }

  void launch() {
    case_.run(device_.stream);
    BOOSTERRUN_CUDA(cudaGetLastError());
  }

  // Poisons every output with NaN (all bits one), runs, and compares.
  Json check() {
    for (const Output& output : case_.outputs)
      BOOSTERRUN_CUDA(cudaMemsetAsync(output.memory, 0xFF, output.bytes, device_.stream));
    launch();
    device_.wait();
    Json outputs = Json::array();
    std::string message;
    for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
      const Output& output = case_.outputs[i];
      Json record = compare(output.name, output.type, output.tolerance, output.download(), references_[i]);
      const std::string& words = record.at("message").string();
      if (!words.empty()) message += (message.empty() ? "" : "; ") + output.name + ": " + words;
      outputs.append(std::move(record));
    }
    if (case_.outputs.empty()) message = "the case declares no output: nothing was compared";
    Json detail = Json::object();
    detail["message"] = message;
    detail["outputs"] = outputs;
    detail["poisoned"] = case_.outputs.size();
    Json answer = Json::object();
    answer["passed"] = message.empty();
    answer["detail"] = detail;
    return answer;
  }

  // Times `launches` launches after `warmup` that are dropped. events: a pair of CUDA events around each launch, L2
  // flushed before it. graph: the same inside one CUDA graph. batch: the mean of 100 launches, warm L2.
  Json sample(std::string timer, std::size_t launches, std::size_t warmup) {
    if (timer == "auto") timer = "events";
    if (launches == 0 || launches + warmup > 1000000) throw Error("a block needs 1 to 1000000 launches");
    std::vector<float> times;
    if (timer == "events") times = events(warmup + launches);
    else if (timer == "graph") times = replay(warmup + launches);
    else if (timer == "batch") times = batch(warmup + launches);
    else throw Error("there is no timer " + timer + " here; the timers are auto, events, graph, batch");
    Json values = Json::array(), detail = Json::object();
    for (std::size_t i = warmup; i < times.size(); ++i) {
      if (!(times[i] > 0) || !std::isfinite(times[i])) throw Error("timer " + timer + " returned " + std::to_string(times[i]) + " ms, which is no time");
      values.append(static_cast<double>(times[i]));
    }
    detail["l2"] = timer == "batch" ? "warm" : "flushed";
    if (timer == "batch") detail["launches_per_value"] = kBatch;
    else detail["flush_bytes"] = device_.flush_bytes();
    Json answer = Json::object();
    answer["values"] = values;
    answer["timer"] = timer;
    answer["detail"] = detail;
    return answer;
  }

 private:
  static constexpr int kBatch = 100;

  static std::vector<std::unique_ptr<Event>> pairs(std::size_t count) {
    std::vector<std::unique_ptr<Event>> events;
    for (std::size_t i = 0; i < 2 * count; ++i) events.push_back(std::make_unique<Event>());
    return events;
  }
  static std::vector<float> elapsed(const std::vector<std::unique_ptr<Event>>& events) {
    std::vector<float> times(events.size() / 2);
    for (std::size_t i = 0; i < times.size(); ++i)
      BOOSTERRUN_CUDA(cudaEventElapsedTime(&times[i], events[2 * i]->handle, events[2 * i + 1]->handle));
    return times;
  }

  std::vector<float> events(std::size_t count) {
    const auto marks = pairs(count);
    device_.flush();
    device_.wait();
    for (std::size_t i = 0; i < count; ++i) {
      device_.flush();
      BOOSTERRUN_CUDA(cudaEventRecord(marks[2 * i]->handle, device_.stream));
      case_.run(device_.stream);
      BOOSTERRUN_CUDA(cudaEventRecord(marks[2 * i + 1]->handle, device_.stream));
    }
    BOOSTERRUN_CUDA(cudaGetLastError());
    device_.wait();
    return elapsed(marks);
  }

  std::vector<float> batch(std::size_t count) {
    const auto marks = pairs(count);
    device_.wait();
    for (std::size_t i = 0; i < count; ++i) {
      BOOSTERRUN_CUDA(cudaEventRecord(marks[2 * i]->handle, device_.stream));
      for (int launch = 0; launch < kBatch; ++launch) case_.run(device_.stream);
      BOOSTERRUN_CUDA(cudaEventRecord(marks[2 * i + 1]->handle, device_.stream));
    }
    BOOSTERRUN_CUDA(cudaGetLastError());
    device_.wait();
    std::vector<float> times = elapsed(marks);
    for (float& time : times) time /= kBatch;
    return times;
  }

  std::vector<float> replay(std::size_t count) {
    if (!graph_ || graph_->launches != count) {
      graph_.reset();
      graph_ = capture(count);
      BOOSTERRUN_CUDA(cudaGraphLaunch(graph_->handle, device_.stream));  // the first one uploads the graph
      device_.wait();
    }
    BOOSTERRUN_CUDA(cudaGraphLaunch(graph_->handle, device_.stream));
    device_.wait();
    return elapsed(graph_->events);
  }

  std::unique_ptr<Graph> capture(std::size_t count) {
    auto graph = std::make_unique<Graph>();
    graph->launches = count;
    graph->events = pairs(count);
    device_.flush();  // allocates its buffer, which is not allowed while capturing
    launch();
    device_.wait();
    cudaGraph_t captured = nullptr;
    const char* words = "; this case fits no CUDA graph: use timer batch";
    try {
      BOOSTERRUN_CUDA(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
      for (std::size_t i = 0; i < count; ++i) {
        device_.flush();
        // External events become nodes of the graph, so that each launch in it is timed by itself.
        BOOSTERRUN_CUDA(cudaEventRecordWithFlags(graph->events[2 * i]->handle, device_.stream, cudaEventRecordExternal));
        case_.run(device_.stream);
        BOOSTERRUN_CUDA(cudaEventRecordWithFlags(graph->events[2 * i + 1]->handle, device_.stream, cudaEventRecordExternal));
      }
      BOOSTERRUN_CUDA(cudaStreamEndCapture(device_.stream, &captured));
      BOOSTERRUN_CUDA(cudaGraphInstantiate(&graph->handle, captured, 0));
    } catch (const Error& error) {
      if (captured == nullptr) cudaStreamEndCapture(device_.stream, &captured);
      if (captured != nullptr) cudaGraphDestroy(captured);
      cudaGetLastError();
      throw Error(error.what() + std::string(words));
    }
    BOOSTERRUN_CUDA(cudaGraphDestroy(captured));
    return graph;
  }

  Case case_;
  Device& device_;
  std::vector<std::vector<double>> references_;
  std::unique_ptr<Graph> graph_;
};

// ---- the worker -----------------------------------------------------------------------------------------------------------

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// Answers requests of boosterrun, one JSON line each; see boosterrun/measure/protocol.py.
class Worker {
 public:
  Worker(int read, int write) : read_(read), write_(write) {}

  int serve() {
    std::string line;
    while (next(line)) {
      const Json request = Json::parse(line);
      const std::string operation = request.at("op").string();
      Json answer = Json::object();
      answer["id"] = request.at("id");
      bool fatal = false;
      if (operation == "bye") {
        answer["ok"] = true;
        answer["result"] = Json::object();
        send(answer);
        return 0;
      }
      try {
        answer["result"] = perform(operation, request);
        answer["ok"] = true;
      } catch (const std::exception& error) {
        fatal = operation == "hello" || lost();
        Json details = Json::object();
        details["kind"] = operation == "hello" ? "start_error" : "runtime_error";
        details["message"] = std::string(error.what()).substr(0, 6000);
        details["traceback"] = "";
        details["fatal"] = fatal;
        answer["ok"] = false;
        answer["error"] = details;
      }
      send(answer);
      if (fatal) {
        std::fflush(nullptr);
        ::_exit(1);  // tearing down a broken CUDA context can hang
      }
    }
    return 0;
  }

 private:
  Json perform(const std::string& operation, const Json& request) {
    if (operation == "hello") return hello(request);
    if (operation == "build") return build(request);
    if (operation == "check") return check(request);
    if (operation == "check_timed") return kept(request).check();
    if (operation == "sample")
      return kept(request).sample(request.at("timer").string(), static_cast<std::size_t>(std::max<std::int64_t>(0, request.at("launches").integer())),
                                  static_cast<std::size_t>(std::max<std::int64_t>(0, request.at("warmup").integer())));
    throw Error("the unknown request " + operation);
  }

  Json hello(const Json& request) {
    make_ = choose(request.at("case").string());
    options_ = request.at("options");
    device_ = std::make_unique<Device>();
    Json answer = Json::object();
    answer["versions"] = versions();
    answer["device"] = device_->describe();
    answer["pid"] = static_cast<std::int64_t>(::getpid());
    return answer;
  }

  Json build(const Json& request) {
    const std::string shape = request.at("shape").string();
    kept_.erase(shape);
    params_[shape] = request.at("params");
    const double begun = now();
    Case made = make(shape, request.at("seed").bits());
    const double ready = now();
    auto kept = std::make_unique<Kept>(std::move(made), *device_);
    const double referenced = now();
    kept->launch();
    device_->wait();
    const double end = now();
    Json detail = Json::object();
    detail["timer"] = "events";
    detail["gpu"] = true;
    detail["reference_seconds"] = referenced - ready;
    detail["flops"] = kept->kernel().flops;
    detail["bytes"] = kept->kernel().bytes;
    kept_[shape] = std::move(kept);
    Json answer = Json::object();
    answer["seconds"] = (ready - begun) + (end - referenced);
    answer["artifacts"] = Json::array();
    answer["kernels"] = Json::array();
    answer["versions"] = versions();
    answer["detail"] = detail;
    return answer;
  }

  Json check(const Json& request) {
    const std::string shape = request.at("shape").string();
    if (params_.find(shape) == params_.end()) throw Error("shape " + shape + " has not been built");
    Kept fresh(make(shape, request.at("seed").bits()), *device_);
    Json answer = fresh.check();
    answer["seed"] = request.at("seed");
    return answer;
  }

  Case make(const std::string& shape, std::uint64_t seed) {
    Json params = options_;
    for (const auto& member : params_.at(shape).members()) params[member.first] = member.second;
    Case made = make_(Shape(params), seed);
    device_->wait();
    return made;
  }

  Kept& kept(const Json& request) {
    const auto found = kept_.find(request.at("shape").string());
    if (found == kept_.end()) throw Error("shape " + request.at("shape").string() + " has not been built");
    return *found->second;
  }

  static Make choose(const std::string& name) {
    std::string known;
    for (const auto& entry : registry()) known += (known.empty() ? "" : ", ") + entry.first;
    if (known.empty()) throw Error("this program has no case: add BOOSTERRUN_CASE(name) { ... }");
    if (name.empty() && registry().size() == 1) return registry().begin()->second;
    const auto found = registry().find(name);
    if (found == registry().end()) throw Error("workload.case=" + name + " is not one of this program's cases: " + known);
    return found->second;
  }

  static Json versions() {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    Json versions = Json::object();
    versions["cuda_runtime"] = version(runtime);
    versions["cuda_driver"] = version(driver);
#ifdef __VERSION__
    versions["host_compiler"] = __VERSION__;
#endif
    return versions;
  }

  // Whether the CUDA context is gone: then nothing this process says later can be believed.
  bool lost() const {
    cudaGetLastError();
    return device_ != nullptr && cudaDeviceSynchronize() != cudaSuccess;
  }

  bool next(std::string& line) {
    while (true) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return true;
      }
      if (buffer_.size() > kMaxLine) throw Error("a request is longer than 8 MiB");
      char data[1 << 16];
      const ssize_t count = ::read(read_, data, sizeof data);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      buffer_.append(data, static_cast<std::size_t>(count));
    }
  }

  void send(const Json& message) {
    const std::string line = message.print() + "\n";
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count = ::write(write_, line.data() + sent, line.size() - sent);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) std::exit(1);  // nobody listens any more
      sent += static_cast<std::size_t>(count);
    }
  }

  static constexpr std::size_t kMaxLine = 8u << 20;
  int read_, write_;
  std::string buffer_;
  Make make_ = nullptr;
  Json options_ = Json::object();
  std::map<std::string, Json> params_;
  std::unique_ptr<Device> device_;
  std::map<std::string, std::unique_ptr<Kept>> kept_;

  friend int by_hand(int, char**);
};

// `program [case=NAME] [seed=N] [KEY=VALUE ...]`: checks once and times a few launches.
inline int by_hand(int count, char** words) {
  Json params = Json::object();
  std::string name;
  std::uint64_t seed = 0;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) throw Error("usage: program [case=NAME] [seed=N] [KEY=VALUE ...]; what is " + word + "?");
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "case") name = value;
    else if (key == "seed") seed = std::strtoull(value.c_str(), nullptr, 10);
    else try { params[key] = Json::parse(value); } catch (const Error&) { params[key] = value; }
  }
  const Make make = Worker::choose(name);
  Device device;
  Case made = make(Shape(params), seed);
  device.wait();
  Kept kept(std::move(made), device);
  const Json checked = kept.check();
  std::printf("check: %s\n", checked.print().c_str());
  std::vector<double> times;
  const Json block = kept.sample("events", 30, 5);
  for (const Json& value : block.at("values").items()) times.push_back(value.number());
  std::nth_element(times.begin(), times.begin() + 15, times.end());
  std::printf("time: %.6g ms (median of 30, L2 flushed)\n", times[15]);
  return checked.at("passed").boolean() ? 0 : 1;
}

inline int start(int count, char** words) {
  try {
    const char* descriptors = std::getenv("BOOSTERRUN_DESCRIPTORS");
    if (descriptors == nullptr) return by_hand(count, words);
    int read = -1, write = -1;
    if (std::sscanf(descriptors, "%d,%d", &read, &write) != 2) throw Error("BOOSTERRUN_DESCRIPTORS is not READ,WRITE");
    ::unsetenv("BOOSTERRUN_DESCRIPTORS");
    ::fcntl(read, F_SETFD, FD_CLOEXEC);
    ::fcntl(write, F_SETFD, FD_CLOEXEC);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return Worker(read, write).serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "boosterrun: error: %s\n", error.what());
    return 2;
  }
}

}  // namespace boosterrun

// Weak, so that several files of one program may include this header, and a program may have a main of its own.
#ifndef BOOSTERRUN_NO_MAIN
__attribute__((weak)) int main(int count, char** words) { return boosterrun::start(count, words); }
#endif
