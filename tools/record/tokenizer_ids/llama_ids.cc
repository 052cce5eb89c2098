// What llama.cpp's tokenizer makes of texts: the other side of tests/text/tokenizer_batch.cc, with
// the same requests and answers. Built by record.py against a llama.cpp tree; no part of Lockstep.
//   llama_ids MODEL.gguf < requests > answers        (count 0xFFFFFFFF: llama.cpp threw)
//   llama_ids MODEL.gguf --facts
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "llama.h"

namespace {

std::string piece_of(const llama_vocab* vocab, int32_t id, bool special) {
  std::string piece(64, '\0');
  int32_t n =
      llama_token_to_piece(vocab, id, piece.data(), static_cast<int32_t>(piece.size()), 0, special);
  if (n < 0) {
    piece.resize(static_cast<size_t>(-n));
    n = llama_token_to_piece(vocab, id, piece.data(), static_cast<int32_t>(piece.size()), 0,
                             special);
  }
  piece.resize(static_cast<size_t>(n));
  return piece;
}

// All pieces, each after its uint32 length: record.py hashes them.
void write_pieces(const llama_vocab* vocab, bool special) {
  for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    const std::string piece = piece_of(vocab, id, special);
    const auto size = static_cast<uint32_t>(piece.size());
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(piece.data(), 1, piece.size(), stdout);
  }
}

void print_facts(const llama_vocab* vocab) {
  const int32_t n = llama_vocab_n_tokens(vocab);
  std::printf("{\"n_vocab\": %d, \"bos\": %d, \"eos\": %d, \"eot\": %d, \"pad\": %d, ", n,
              llama_vocab_bos(vocab), llama_vocab_eos(vocab), llama_vocab_eot(vocab),
              llama_vocab_pad(vocab));
  std::printf("\"add_bos\": %s, \"add_eos\": %s, \"eog\": [",
              llama_vocab_get_add_bos(vocab) ? "true" : "false",
              llama_vocab_get_add_eos(vocab) ? "true" : "false");
  const char* comma = "";
  for (int32_t id = 0; id < n; ++id) {
    if (!llama_vocab_is_eog(vocab, id)) continue;
    std::printf("%s%d", comma, id);
    comma = ", ";
  }
  std::printf("]}\n");
}

void answer_requests(const llama_vocab* vocab) {
  std::vector<char> text;
  std::vector<llama_token> ids;
  for (;;) {
    unsigned char head[5];
    if (std::fread(head, 1, sizeof head, stdin) != sizeof head) break;
    uint32_t length = 0;
    std::memcpy(&length, head + 1, sizeof length);
    text.resize(length);
    if (length && std::fread(text.data(), 1, length, stdin) != length) break;
    ids.resize(length * 4 + 16);
    uint32_t count = 0xFFFFFFFF;
    try {
      const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(length), ids.data(),
                                       static_cast<int32_t>(ids.size()), head[0] & 1, head[0] & 2);
      count = static_cast<uint32_t>(n);
    } catch (const std::exception&) {
    }
    std::fwrite(&count, sizeof count, 1, stdout);
    if (count != 0xFFFFFFFF) std::fwrite(ids.data(), sizeof(int32_t), count, stdout);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (!model) {
    std::fprintf(stderr, "llama_ids: cannot load %s\n", argv[1]);
    return 1;
  }
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const std::string mode = argc > 2 ? argv[2] : "";
  if (mode == "--facts") {
    print_facts(vocab);
  } else if (mode == "--pieces" || mode == "--special-pieces") {
    write_pieces(vocab, mode == "--special-pieces");
  } else {
    answer_requests(vocab);
  }
  llama_model_free(model);
  return 0;
}
