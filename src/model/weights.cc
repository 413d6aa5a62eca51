#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>

#include "base/check.h"
#include "model/architecture.h"

namespace kvasir {

// One Load: first lays out the buffer, then moves tensor by tensor from the file into it.
class WeightsLoader {
 public:
  WeightsLoader(const GgufFile& file, const ModelConfig& config, WorkerTeam& team,
                const WeightsLoadOptions& options)
      : file_(file), config_(config), team_(team), options_(options), digester_(file) {
    for (uint32_t i = 0; i < digester_.leaf_count(); ++i) {
      leaf_at_.emplace(digester_.leaf(i).data(), i);
    }
    hashed_.resize(digester_.leaf_count());
  }

  StatusOr<Weights> Load() {
    LayOut();
    KV_ASSIGN_OR_RETURN(weights_.buffer_, HugeBuffer::Allocate(buffer_bytes_));
    // Addresses exist only now: the same walk again, this time with a base.
    buffer_bytes_ = 0;
    moves_.clear();
    LayOut();
    KV_RETURN_IF_ERROR(StartSketch());
    for (const Move& move : moves_) MoveTensor(move);
    HashRest();
    if (sketch_failed_.load()) weights_.head_sketch_.reset();
    weights_.digest_ = digester_.Root();
    return std::move(weights_);
  }

 private:
  struct Move {
    const GgufTensor* tensor;
    std::byte* target;
    bool is_vector;
  };
  // A part of the file that is hashed, repacked and let go before the next: bounds resident memory.
  static constexpr size_t kSliceBytes = 4 * ModelDigester::kLeafBytes;

  const GgufTensor& Tensor(const std::string& name) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    KV_CHECK(tensor != nullptr);  // ReadModelConfig has looked.
    return *tensor;
  }

  std::byte* Place(size_t bytes) {
    std::byte* at =
        weights_.buffer_.size() == 0 ? nullptr : weights_.buffer_.data() + buffer_bytes_;
    buffer_bytes_ += (bytes + 63) / 64 * 64;
    return at;
  }

  std::span<const float> Vector(const std::string& name) {
    const GgufTensor& tensor = Tensor(name);
    std::byte* at = Place(tensor.cols() * sizeof(float));
    moves_.push_back({&tensor, at, true});
    return {reinterpret_cast<const float*>(at), tensor.cols()};
  }

  PackedMatrix Matrix(const std::string& name) {
    const GgufTensor& tensor = Tensor(name);
    PackedMatrix matrix;
    matrix.format = tensor.format;
    matrix.rows = static_cast<uint32_t>(tensor.rows());
    matrix.cols = static_cast<uint32_t>(tensor.cols());
    std::byte* at = Place(matrix.panel_count() * PackedPanelBytes(matrix.format, matrix.cols));
    matrix.bytes = at;
    moves_.push_back({&tensor, at, false});
    return matrix;
  }

  // Rows of a matrix that has just been laid out, or of one that starts here.
  PackedMatrix Part(const TensorRows& rows) {
    if (rows.name != whole_name_) {
      whole_ = Matrix(rows.name);
      whole_name_ = rows.name;
    }
    KV_CHECK_EQ(rows.first % kPanelRows, 0u);  // Widths are multiples of 16.
    PackedMatrix part = whole_;
    part.rows = rows.rows;
    if (part.bytes != nullptr) {
      part.bytes += rows.first / kPanelRows * PackedPanelBytes(part.format, part.cols);
    }
    return part;
  }

  void LayOut() {
    whole_name_.clear();
    weights_.layers_.clear();
    weights_.layer_macs_ = 0;
    for (uint32_t i = 0; i < config_.layer_count; ++i) {
      const auto name = [&](const char* part) { return LayerTensorName(i, part); };
      LayerWeights layer;
      layer.attn_norm = Vector(name("attn_norm"));
      if (config_.qk_norm) {
        layer.q_norm = Vector(name("attn_q_norm"));
        layer.k_norm = Vector(name("attn_k_norm"));
      }
      const LayerProjections at = ProjectionsOf(config_, i);
      layer.q = Part(at.q);
      layer.k = Part(at.k);
      layer.v = Part(at.v);
      if (config_.qkv_bias) {
        layer.q_bias = Vector(LayerBiasName(i, "attn_q"));
        layer.k_bias = Vector(LayerBiasName(i, "attn_k"));
        layer.v_bias = Vector(LayerBiasName(i, "attn_v"));
      }
      layer.attn_output = Matrix(name("attn_output"));
      if (config_.post_norms) layer.post_attn_norm = Vector(name("post_attention_norm"));
      layer.ffn_norm = Vector(name("ffn_norm"));
      layer.gate = Part(at.gate);
      layer.up = Part(at.up);
      layer.down = Matrix(name("ffn_down"));
      if (config_.post_norms) layer.post_ffn_norm = Vector(name("post_ffw_norm"));
      for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.attn_output,
                                         &layer.gate, &layer.up, &layer.down}) {
        weights_.layer_macs_ += uint64_t{matrix->rows} * matrix->cols;
      }
      weights_.layers_.push_back(layer);
    }
    weights_.output_norm_ = Vector("output_norm.weight");
    weights_.step_bytes_ = buffer_bytes_;
    if (config_.tied_head) {
      weights_.token_embedding_ = weights_.head_ = Matrix("token_embd.weight");
      weights_.step_bytes_ = buffer_bytes_;
    } else {
      weights_.head_ = Matrix("output.weight");
      weights_.step_bytes_ = buffer_bytes_;
      weights_.token_embedding_ = Matrix("token_embd.weight");
    }
  }

  // Before anything is released: looks at the final norm and some rows of the head.
  Status StartSketch() {
    const PackedMatrix& head = weights_.head_;
    if (!options_.head_sketch || !HeadSketch::Suits(head.format, head.cols)) return OkStatus();
    const GgufTensor& tensor = HeadTensor();
    const GgufTensor& norm = Tensor("output_norm.weight");
    std::vector<float> channels(norm.cols());
    std::memcpy(channels.data(), norm.bytes.data(), channels.size() * sizeof(float));
    KV_ASSIGN_OR_RETURN(HeadSketch sketch,
                        HeadSketch::Create(tensor.bytes, head.rows, head.cols, channels));
    weights_.head_sketch_.emplace(std::move(sketch));
    return OkStatus();
  }

  const GgufTensor& HeadTensor() const {
    return Tensor(config_.tied_head ? "token_embd.weight" : "output.weight");
  }

  void MoveTensor(const Move& move) {
    const GgufTensor& tensor = *move.tensor;
    const size_t row_bytes = FileRowBytes(tensor.format, static_cast<uint32_t>(tensor.cols()));
    const size_t panel_bytes = kPanelRows * row_bytes;
    const uint32_t panels = static_cast<uint32_t>((tensor.rows() + kPanelRows - 1) / kPanelRows);
    size_t released = 0;
    uint32_t packed = 0;
    for (size_t end = 0; end < tensor.bytes.size();) {
      const size_t begin = end;
      end = std::min(tensor.bytes.size(), begin + kSliceBytes);
      Hash(tensor.bytes.subspan(begin, end - begin));
      if (move.is_vector) {
        std::memcpy(move.target + begin, tensor.bytes.data() + begin, end - begin);
        continue;
      }
      const bool last = end == tensor.bytes.size();
      const uint32_t ready = last ? panels : static_cast<uint32_t>(end / panel_bytes);
      Pack(tensor, packed, ready, move.target);
      packed = ready;
      const size_t done = last ? end : ready * panel_bytes;
      Release(tensor.bytes.subspan(released, done - released));
      released = done;
    }
    if (move.is_vector) Release(tensor.bytes);
  }

  void Pack(const GgufTensor& tensor, uint32_t begin, uint32_t end, std::byte* target) {
    const uint32_t rows = static_cast<uint32_t>(tensor.rows());
    const uint32_t cols = static_cast<uint32_t>(tensor.cols());
    const size_t bytes =
        (rows + kPanelRows - 1) / kPanelRows * PackedPanelBytes(tensor.format, cols);
    const bool sketched = weights_.head_sketch_.has_value() && &tensor == &HeadTensor();
    team_.Run([&](int) {
      team_.For(end - begin, 8, [&](uint32_t from, uint32_t to) {
        PackPanels(tensor.format, tensor.bytes, rows, cols, begin + from, begin + to,
                   {target, bytes});
        if (!sketched) return;
        if (!weights_.head_sketch_->BuildPanels(tensor.bytes, begin + from, begin + to)) {
          sketch_failed_.store(true);
        }
      });
    });
  }

  // Hashes the leaves that lie in `slice`; slices are cut at leaf borders.
  void Hash(std::span<const std::byte> slice) {
    auto at = leaf_at_.lower_bound(slice.data());
    pending_.clear();
    for (; at != leaf_at_.end() && at->first < slice.data() + slice.size(); ++at) {
      pending_.push_back(at->second);
      hashed_[at->second] = true;
    }
    HashPending();
  }

  void HashPending() {
    team_.Run([&](int) {
      team_.For(static_cast<uint32_t>(pending_.size()), 1, [&](uint32_t from, uint32_t to) {
        for (uint32_t i = from; i < to; ++i) digester_.HashLeaf(pending_[i]);
      });
    });
  }

  // Tensors that the forward pass does not read belong to the model's identity all the same.
  void HashRest() {
    for (uint32_t i = 0; i < digester_.leaf_count(); ++i) {
      if (hashed_[i]) continue;
      pending_.assign(1, i);
      HashPending();
      Release(digester_.leaf(i));
    }
  }

  void Release(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    if (options_.release) options_.release(bytes);
    moved_bytes_ += bytes.size();
    if (options_.progress) {
      options_.progress(static_cast<double>(moved_bytes_) /
                        static_cast<double>(std::max<uint64_t>(1, file_.tensor_bytes())));
    }
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  WorkerTeam& team_;
  const WeightsLoadOptions& options_;
  ModelDigester digester_;
  std::map<const std::byte*, uint32_t> leaf_at_;
  std::vector<bool> hashed_;
  std::vector<uint32_t> pending_;
  std::vector<Move> moves_;
  std::string whole_name_;  // Of the matrix that Part cuts.
  PackedMatrix whole_;
  size_t buffer_bytes_ = 0;
  uint64_t moved_bytes_ = 0;
  std::atomic<bool> sketch_failed_{false};
  Weights weights_;
};

StatusOr<Weights> Weights::Load(const GgufFile& file, const ModelConfig& config, WorkerTeam& team,
                                const WeightsLoadOptions& options) {
  return WeightsLoader(file, config, team, options).Load();
}

}  // namespace kvasir
