// Test tool: encodes texts from stdin, for tests/text/test_tokenizer_ids.py.
//   tokenizer_batch MODEL.gguf < requests > answers
// Request: uint8 flags (1 add_special, 2 parse_special), uint32 length, text. Answer: uint32 count,
// int32 ids. All little-endian. With --facts instead: one JSON object about the vocabulary.
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "text/tokenizer.h"

using namespace lockstep;

namespace {

Digest hash_pieces(const text::Tokenizer& tokenizer, bool special) {
  std::string bytes;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    const std::string piece = tokenizer.piece(id, special);
    const auto size = static_cast<uint32_t>(piece.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(piece);
  }
  return sha256(std::as_bytes(std::span(bytes)));
}

void print_facts(const text::Tokenizer& tokenizer) {
  const nlohmann::json facts = {
      {"n_vocab", tokenizer.n_vocab()},
      {"bos", tokenizer.bos()},
      {"eos", tokenizer.eos()},
      {"eot", tokenizer.eot()},
      {"pad", tokenizer.pad()},
      {"add_bos", tokenizer.add_bos()},
      {"add_eos", tokenizer.add_eos()},
      {"eog", tokenizer.eog_tokens()},
      {"pieces_sha256", to_hex(hash_pieces(tokenizer, false))},
      {"special_pieces_sha256", to_hex(hash_pieces(tokenizer, true))},
      {"description", tokenizer.description()},
  };
  std::printf("%s\n", facts.dump().c_str());
}

void answer_requests(const text::Tokenizer& tokenizer) {
  std::vector<char> text;
  for (;;) {
    unsigned char head[5];
    if (std::fread(head, 1, sizeof head, stdin) != sizeof head) break;
    uint32_t length = 0;
    std::memcpy(&length, head + 1, sizeof length);
    text.resize(length);
    if (length && std::fread(text.data(), 1, length, stdin) != length) break;
    const std::vector<int32_t> ids =
        tokenizer.encode({text.data(), text.size()}, head[0] & 1, head[0] & 2);
    const auto count = static_cast<uint32_t>(ids.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    if (count) std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tokenizer_batch MODEL.gguf [--facts]\n");
    return 2;
  }
  try {
    const auto tokenizer = text::Tokenizer::load(gguf::File::open(argv[1]));
    if (argc > 2 && std::string(argv[2]) == "--facts") {
      print_facts(tokenizer);
    } else {
      answer_requests(tokenizer);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_batch: %s\n", error.what());
    return 1;
  }
  return 0;
}
