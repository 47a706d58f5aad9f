// Cases for the tests of boosterrun.cuh. They need no GPU: what they "launch" runs on the host.
#include <boosterrun.cuh>

#include <csignal>

extern "C" int fake_error;

// Like CUDA's small types: made from a float, turned into one. Exponent bits as in half or bfloat16, normal numbers only.
template <int kExponentBits>
class Small {
 public:
  Small() = default;
  explicit Small(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits += (1u << (kDropped - 1)) - (kBias << 23);  // rounds half up
    code_ = static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (bits >> kDropped & 0x7FFF));
  }
  explicit operator float() const {
    if ((code_ & 0x7FFF) >> (15 - kExponentBits) == (1 << kExponentBits) - 1) return NAN;
    std::uint32_t bits = ((code_ & 0x7FFFu) << kDropped) + (kBias << 23);
    bits |= (code_ & 0x8000u) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }

 private:
  static constexpr int kDropped = 8 + kExponentBits;
  static constexpr std::uint32_t kBias = 127 - ((1 << (kExponentBits - 1)) - 1);
  std::uint16_t code_ = 0;
};

// y = 2 x, with the fault that the shape names.
BOOSTERRUN_CASE(scale) {
  const int n = shape.multiple("n", 1);
  const std::string fault = shape.text("fault", "none");
  boosterrun::Random random(seed);
  const auto x = random.normal<float>(n);
  const boosterrun::Buffer<float> in(x), out(n);
  const auto launches = std::make_shared<int>(0);
  boosterrun::Case kernel;
  kernel.flops = n;
  kernel.run = [=](cudaStream_t) {
    ++*launches;
    if (fault == "babble") std::printf("{\"id\": 1}\n"), std::fprintf(stderr, "noise\n");
    if (fault == "throw") throw boosterrun::Error("no kernel today");
    if (fault == "sticky") fake_error = 700;
    if (fault == "crash") std::raise(SIGSEGV);
    if (fault == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
    if (fault == "skip" && *launches > 1) return;  // right once, and then what is left from before
    if (fault == "exit") std::exit(3);
    std::this_thread::sleep_for(std::chrono::microseconds(shape.integer("microseconds", 0)));
    for (int i = 0; i < n; ++i) out.data()[i] = 2 * in.data()[i];
    if (fault == "wrong") out.data()[n / 2] += 1;
    if (fault == "infinite") out.data()[0] = INFINITY;
  };
  kernel.output("y", out, [x] {
    std::vector<double> y(x.begin(), x.end());
    for (double& value : y) value *= 2;
    return y;
  });
  return kernel;
}

// One output of each kind of element.
template <typename T>
void add_output(boosterrun::Case& kernel, const char* name, bool written) {
  const boosterrun::Buffer<T> buffer(3);
  const auto before = kernel.run;
  kernel.run = [=](cudaStream_t stream) {
    if (before) before(stream);
    for (int i = 0; written && i < 3; ++i) buffer.data()[i] = T(static_cast<float>(i + 1));
  };
  kernel.output(name, buffer, [] { return std::vector<double>{1, 2, 3}; });
}

BOOSTERRUN_CASE(types) {
  const std::string unwritten = shape.text("unwritten", "");
  boosterrun::Case kernel;
  add_output<float>(kernel, "float", unwritten != "float");
  add_output<double>(kernel, "double", unwritten != "double");
  add_output<Small<5>>(kernel, "half", unwritten != "half");
  add_output<Small<8>>(kernel, "bfloat16", unwritten != "bfloat16");
  add_output<int>(kernel, "int", unwritten != "int");
  add_output<std::uint8_t>(kernel, "byte", unwritten != "byte");
  return kernel;
}

BOOSTERRUN_CASE(nothing) {
  boosterrun::Case kernel;
  kernel.run = [](cudaStream_t) {};
  return kernel;
}

// These answer by an error, whose words are the answer.
BOOSTERRUN_CASE(echo) { throw boosterrun::Error(boosterrun::Json::parse(shape.text("text")).print()); }

BOOSTERRUN_CASE(compared) {
  const auto numbers = [&](const char* name) {
    std::vector<double> values;
    const auto list = boosterrun::Json::parse(shape.text(name));
    for (const auto& item : list.items())
      values.push_back(item.kind() == boosterrun::Json::Kind::string ? std::strtod(item.string().c_str(), nullptr) : item.number());
    return values;
  };
  const boosterrun::Type type{"float64", 1e-10, shape.boolean("exact", false)};
  throw boosterrun::Error(boosterrun::compare("x", type, shape.real("tolerance"), numbers("output"), numbers("reference")).print());
}

BOOSTERRUN_CASE(drawn) {
  boosterrun::Random random(seed);
  const std::size_t count = shape.integer("count");
  auto numbers = boosterrun::Json::array();
  for (const auto& values : {random.normal<double>(count, 2, 1), random.uniform<double>(count, 3, 5)})
    for (const double value : values) numbers.append(value);
  throw boosterrun::Error(numbers.print());
}
