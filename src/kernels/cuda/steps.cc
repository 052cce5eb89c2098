#include "kernels/cuda/steps.h"

#include <algorithm>

#include "kernels/cpu/pass_plan.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kWidestChain = 32768;  // a row of it is in shared memory

std::vector<Slot> input_slots(const OpArgs& args) {
  struct Reads {
    std::vector<Slot> operator()(const op::Embed&) const { return {}; }
    std::vector<Slot> operator()(const op::RmsNorm& a) const { return {a.in}; }
    std::vector<Slot> operator()(const op::Linear& a) const { return {a.in}; }
    std::vector<Slot> operator()(const op::Rope& a) const { return {a.inout}; }
    std::vector<Slot> operator()(const op::KvWrite& a) const { return {a.k, a.v}; }
    std::vector<Slot> operator()(const op::Attention& a) const { return {a.q}; }
    std::vector<Slot> operator()(const op::Add& a) const { return {a.a, a.b}; }
    std::vector<Slot> operator()(const op::GatedAct& a) const { return {a.gate, a.up}; }
    std::vector<Slot> operator()(const op::SelectRows& a) const { return {a.in}; }
    std::vector<Slot> operator()(const op::Softcap& a) const { return {a.inout}; }
  };
  return std::visit(Reads{}, args);
}

bool has(const std::vector<Slot>& slots, Slot slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph) {}

  std::vector<Step> all() {
    int i = 0;
    while (i < size()) i = next(i);
    return std::move(steps_);
  }

 private:
  int size() const { return static_cast<int>(graph_.ops.size()); }
  template <typename T>
  const T* at(int i) const {
    return i < size() ? std::get_if<T>(&graph_.ops[static_cast<size_t>(i)].args) : nullptr;
  }
  int64_t width(Slot slot) const { return graph_.slots[static_cast<size_t>(slot)].width; }

  // Whether op `from` or a later one reads what is in the slot now.
  bool read_from(int from, Slot slot) const {
    for (int i = from; i < size(); ++i) {
      const OpArgs& args = graph_.ops[static_cast<size_t>(i)].args;
      if (has(input_slots(args), slot)) return true;
      if (has(output_slots(args), slot)) return false;
    }
    return slot == graph_.logits;
  }

  const op::RmsNorm* row_norm(int i) const {
    const auto* norm = at<op::RmsNorm>(i);
    const bool fits = norm && norm->group == width(norm->in) && norm->group <= kWidestChain;
    return fits ? norm : nullptr;
  }

  // Whether what the heads' ops make is read by the attention at op i alone.
  bool heads_feed(const step::Heads& heads, int i) const {
    const auto& attention = *at<op::Attention>(i);
    const Slot q = at<op::Rope>(heads.rope_q)->inout;
    return attention.q == q && at<op::Rope>(heads.rope_q)->head_dim == attention.head_dim &&
           graph_.ops[static_cast<size_t>(i)].layer ==
               graph_.ops[static_cast<size_t>(i - 1)].layer &&
           (attention.out == q || !read_from(i + 1, q));
  }

  // The steps that begin at op i; returns the op after them.
  int next(int i) {
    if (const int end = row_chain(i)) return end;
    if (const int end = heads(i)) return end;
    if (at<op::Linear>(i)) {
      steps_.push_back(step::Linear{i, quantised_ == i});
      return i + 1;
    }
    if (const auto* attention = at<op::Attention>(i)) {
      step::Attention made{i};
      if (const auto* heads = steps_.empty() ? nullptr : std::get_if<step::Heads>(&steps_.back());
          heads && heads->kv_write == i - 1 && heads_feed(*heads, i)) {
        made.heads = *heads;
        steps_.pop_back();
      }
      if (const auto* linear = at<op::Linear>(i + 1); linear && linear->in == attention->out) {
        made.linear = quantised_ = i + 1;
        made.keep_out = forms_of(*linear).floats || read_from(i + 2, attention->out);
      }
      steps_.push_back(made);
      return i + 1;
    }
    if (const auto* act = at<op::GatedAct>(i)) {
      const auto* linear = at<op::Linear>(i + 1);
      const LinearForms forms = linear ? forms_of(*linear) : LinearForms{};
      if (linear && linear->in == act->out && !forms.floats && forms.q[0] != forms.q[1]) {
        quantised_ = i + 1;
        steps_.push_back(step::GatedAct{i, i + 1, read_from(i + 2, act->out)});
        return i + 1;
      }
    }
    steps_.push_back(step::Single{i});
    return i + 1;
  }

  int row_chain(int i) {
    step::RowChain made;
    Slot h = -1;
    int end = i;
    if (const auto* embed = at<op::Embed>(i)) {
      made.embed = end++;
      h = embed->out;
    } else if (const auto* select = at<op::SelectRows>(i)) {
      made.select = end++;
      h = select->out;
    } else if (const auto* add = at<op::Add>(i); add && add->a == add->out && add->b != add->a) {
      made.add = end++;
      h = add->out;
    } else if (const auto* norm = row_norm(i)) {
      const auto* after = at<op::Add>(i + 1);
      if (norm->in == norm->out && after && after->a == after->out && after->b == norm->out &&
          after->a != norm->out && !read_from(i + 2, norm->out)) {
        made.branch_norm = i;
        made.add = i + 1;
        h = after->out;
        end = i + 2;
      } else {
        h = norm->in;
      }
    } else {
      return 0;
    }
    if (width(h) > kWidestChain) return 0;
    if (const auto* norm = row_norm(end); norm && norm->in == h && norm->out != h) {
      made.norm = end++;
      if (const auto* linear = at<op::Linear>(end); linear && linear->in == norm->out) {
        made.linear = quantised_ = end;
        made.keep_x = forms_of(*linear).floats || read_from(end + 1, norm->out);
      }
    }
    if (end == i) return 0;
    steps_.push_back(made);
    return end;
  }

  int heads(int i) {
    step::Heads made;
    int end = i;
    const op::RmsNorm* norms[2] = {};
    for (const op::RmsNorm*& norm : norms) {
      const auto* found = at<op::RmsNorm>(end);
      if (!found || found->in != found->out) break;
      norm = found;
      ++end;
    }
    const auto *q = at<op::Rope>(end), *k = at<op::Rope>(end + 1);
    const auto* write = at<op::KvWrite>(end + 2);
    if (!q || !k || !write || write->k != k->inout || q->inout == k->inout ||
        write->v == q->inout || write->v == k->inout || q->spec != k->spec ||
        q->head_dim != k->head_dim || width(k->inout) != width(write->v) ||
        width(k->inout) != k->n_head * k->head_dim || read_from(end + 3, k->inout)) {
      return 0;
    }
    for (int n = 0; n < 2 && norms[n]; ++n) {
      if (norms[n]->group != q->head_dim) return 0;
      int& place = norms[n]->in == q->inout ? made.q_norm : made.k_norm;
      if ((norms[n]->in != q->inout && norms[n]->in != k->inout) || place >= 0) return 0;
      place = i + n;
    }
    made.rope_q = end;
    made.rope_k = end + 1;
    made.kv_write = end + 2;
    steps_.push_back(made);
    return end + 3;
  }

  const Graph& graph_;
  std::vector<Step> steps_;
  int quantised_ = -1;  // the Linear whose input the last steps quantise
};

}  // namespace

int step::RowChain::first() const {
  for (const int op : {embed, branch_norm, add, select}) {
    if (op >= 0) return op;
  }
  return norm;
}

LinearForms forms_of(const op::Linear& linear) {
  LinearForms forms;
  for (const op::LinearOut& out : linear.outs) {
    const ActivationForm form = activation_form(out.weight->type);
    forms.floats |= form == ActivationForm::f32;
    forms.q[0] |= form == ActivationForm::q32;
    forms.q[1] |= form == ActivationForm::q256;
  }
  return forms;
}

std::vector<Step> steps_of(const Graph& graph) {
  return Matcher(graph).all();
}

}  // namespace lockstep::kernels::cuda
