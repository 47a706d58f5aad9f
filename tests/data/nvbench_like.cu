// Leaves what an NVBench program leaves: JSON, and the samples beside it. Arguments: --states N, --jsonbin FILE.
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/stat.h>
extern "C" __global__ void work(float* p, int n) {
  float a[24];
  for (int i = 0; i < 24; i++) a[i] = p[i * n + threadIdx.x];
  float s = 0;
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 24; i++) { a[i] = a[i] * a[(i + j) % 24] + s; s += a[i] * p[j] * 1.5f; }
  p[threadIdx.x] = s;
}

int main(int count, char** words) {
  int states = 1;
  std::string json;
  for (int i = 1; i < count; ++i) {
    if (words[i] == std::string("--states")) states = std::atoi(words[++i]);
    else if (words[i] == std::string("--jsonbin")) json = words[++i];
    else return 2;
  }
  const std::string name = json.substr(json.rfind('/') + 1) + "-bin";
  mkdir((json + "-bin").c_str(), 0777);
  const float seconds[3] = {0.5e-3f, 0.5001e-3f, 0.4999e-3f};
  std::ofstream(json + "-bin/0.bin", std::ios::binary).write(reinterpret_cast<const char*>(seconds), sizeof seconds);
  std::ofstream out(json);
  out << R"({"benchmarks": [{"name": "work", "states": [)";
  for (int i = 0; i < states; ++i)
    out << (i ? "," : "") << R"({"name": "Device=0", "is_skipped": false, "summaries": [
      {"tag": "nv/json/bin:nv/cold/sample_times", "data": [
        {"name": "filename", "type": "string", "value": ")" << name << R"(/0.bin"},
        {"name": "size", "type": "int64", "value": "3"}]}]})";
  out << "]}]}";
  return 0;
}
