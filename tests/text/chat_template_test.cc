#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "gguf/writer.h"
#include "synthetic_vocabulary.h"

namespace lockstep::text {
namespace {

using Json = ChatTemplate::Json;
namespace fs = std::filesystem;

const Json kHello = {{{"role", "user"}, {"content", "Hello"}}};

std::string render(const std::string& source, const Json& messages = kHello,
                   const Json& extra = Json::object(), bool add_generation_prompt = false) {
  return ChatTemplate(source, "<s>", "</s>").render(messages, add_generation_prompt, extra);
}

struct Failure {
  ExitCode code;
  std::string message;
};

template <typename Action>
Failure failure_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return {error.code(), error.what()};
  }
  return {ExitCode::ok, ""};
}

// Children of this process.
std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "children");
    for (pid_t pid; file >> pid;) pids.push_back(pid);
  }
  return pids;
}

TEST(ChatTemplate, RendersMessagesTokensAndVariables) {
  EXPECT_EQ(
      render("{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}"
             "{% if add_generation_prompt %}>{% endif %}{{ eos_token }}{{ x }}",
             kHello, {{"x", 3}}, true),
      "<s>user:Hello;></s>3");
}

TEST(ChatTemplate, HasTheEnvironmentOfTransformers) {
  // trim_blocks and lstrip_blocks
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
  // loop controls
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 "
                   "%}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "013");
  // tojson: no HTML escapes, not ASCII only, keys in their order
  EXPECT_EQ(
      render("{{ t | tojson }}", kHello, {{"t", {{"z", "<é>'"}, {"a", {1, 2.5, nullptr, true}}}}}),
      "{\"z\": \"<é>'\", \"a\": [1, 2.5, null, true]}");
  EXPECT_EQ(render("{{ t | tojson(indent=2) }}", kHello, {{"t", {{"a", 1}}}}), "{\n  \"a\": 1\n}");
  // absent tools are none, unknown names undefined
  EXPECT_EQ(render("{{ tools is none }} {{ nothing is defined }}"), "True False");
  EXPECT_EQ(render("{% generation %}body{% endgeneration %}"), "body");
  EXPECT_EQ(render("{%- set ns = namespace(n=0) -%}{% for m in messages %}{% set ns.n = ns.n + 1 "
                   "%}{% endfor %}{{ ns.n }}"),
            "1");
}

TEST(ChatTemplate, TheDateCanBeGiven) {
  const ChatTemplate t("{{ strftime_now('%Y-%m-%d %H:%M') }}", "", "");
  EXPECT_EQ(t.render(kHello, false, Json::object(), 86400 * 365), "1971-01-01 00:00");
  EXPECT_EQ(t.render(kHello, false).substr(0, 2), "20");
}

TEST(ChatTemplate, UnicodeAndLongTextsPass) {
  std::string text = "é🙂\n\t\"\\ {{ not a template }} \x01";
  EXPECT_EQ(render("{{ messages[0].content }}", {{{"role", "user"}, {"content", text}}}), text);
  std::string large;
  for (int i = 0; i < 300000; ++i) large += "0123456789";
  EXPECT_EQ(render("{{ messages[0].content }}", {{{"role", "user"}, {"content", large}}}), large);
  EXPECT_EQ(render("{{ messages[0].content }}", {{{"role", "user"}, {"content", "a\xFFz"}}}),
            "a\xEF\xBF\xBDz");
  EXPECT_EQ(render("{{ '\\ud83d' }}."), "\xEF\xBF\xBD.");
}

TEST(ChatTemplate, ARefusalOfTheTemplateIsBadUse) {
  const Failure f = failure_of([] { render("{{ raise_exception('Roles must\\nalternate') }}"); });
  EXPECT_EQ(f.code, ExitCode::bad_use);
  EXPECT_EQ(f.message, "chat template: Roles must\\nalternate");
}

TEST(ChatTemplate, ABrokenTemplateIsABadFile) {
  const Failure syntax = failure_of([] { ChatTemplate("a\nb {% if %}", "", ""); });
  EXPECT_EQ(syntax.code, ExitCode::bad_file);
  EXPECT_EQ(syntax.message.find("chat template: line 2: "), 0u) << syntax.message;
  const Failure undefined = failure_of([] { render("{{ messages[0].content.nothing.more }}"); });
  EXPECT_EQ(undefined.code, ExitCode::bad_file);
  const Failure type = failure_of([] { render("{{ 1 + 'a' }}"); });
  EXPECT_EQ(type.code, ExitCode::bad_file);
  EXPECT_EQ(type.message.find("chat template: TypeError: "), 0u) << type.message;
  EXPECT_EQ(failure_of([] { render("{{ x | nofilter }}"); }).code, ExitCode::bad_file);
}

TEST(ChatTemplate, TheSandboxHolds) {
  for (const char* source :
       {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}", "{% include '/etc/passwd' %}",
        "{{ '%s' | format(messages.__class__.__base__) }}"}) {
    EXPECT_EQ(failure_of([&] { render(source); }).code, ExitCode::bad_file) << source;
  }
}

TEST(ChatTemplate, TimeIsLimitedAndTheNextRenderWorks) {
  ChatTemplateLimits limits;
  limits.render = std::chrono::milliseconds(300);
  const ChatTemplate t(
      "{% if slow %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
      "{% endif %}done",
      "", "", limits);
  const auto start = std::chrono::steady_clock::now();
  const Failure f = failure_of([&] { t.render(kHello, false, {{"slow", true}}); });
  EXPECT_EQ(f.code, ExitCode::resource);
  EXPECT_EQ(f.message, "chat template: ran longer than 0.3 s and was stopped");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  limits.render = std::chrono::seconds(30);
  EXPECT_EQ(ChatTemplate("done", "", "", limits).render(kHello, false), "done");
}

TEST(ChatTemplate, MemoryIsLimited) {
  const ChatTemplate t("{% if big %}{{ 'x' * 900000000 }}{% endif %}ok", "", "");
  const Failure f = failure_of([&] { t.render(kHello, false, {{"big", true}}); });
  EXPECT_EQ(f.code, ExitCode::resource);
  EXPECT_EQ(f.message, "chat template: needed more than 512 MiB of memory");
  EXPECT_EQ(t.render(kHello, false), "ok");
}

TEST(ChatTemplate, TheOutputIsLimited) {
  ChatTemplateLimits limits;
  limits.reply_bytes = 1 << 20;
  const ChatTemplate t("{{ 'x' * 5000000 }}", "", "", limits);
  const Failure f = failure_of([&] { t.render(kHello, false); });
  EXPECT_EQ(f.code, ExitCode::resource);
  EXPECT_EQ(f.message, "chat template: wrote more than 1 MiB");
}

TEST(ChatTemplate, AKilledHelperIsReplaced) {
  const ChatTemplate t("{{ messages[0].content }}", "", "");
  EXPECT_EQ(t.render(kHello, false), "Hello");
  const auto pids = children();
  ASSERT_EQ(pids.size(), 1u);
  kill(pids[0], SIGKILL);
  EXPECT_EQ(t.render(kHello, false), "Hello");
  EXPECT_EQ(t.render(kHello, false), "Hello");
}

TEST(ChatTemplate, SurvivesTheThreadThatMadeIt) {
  std::optional<ChatTemplate> t;
  std::thread([&] { t.emplace("{{ messages[0].content }}", "", ""); }).join();
  EXPECT_EQ(t->render(kHello, false), "Hello");
}

TEST(ChatTemplate, RendersFromManyThreads) {
  const ChatTemplate t("{{ messages[0].content }}", "", "");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&t, i] {
      const std::string text = "thread " + std::to_string(i);
      for (int k = 0; k < 20; ++k)
        EXPECT_EQ(t.render({{{"role", "user"}, {"content", text}}}, false), text);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ChatTemplate, TheHelperIsReaped) {
  {
    const ChatTemplate t("x", "", "");
    EXPECT_EQ(children().size(), 1u);
  }
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no zombie either
}

TEST(ChatTemplate, TheHelperEndsWithItsParent) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    // A parent that dies without destructors, while the helper is busy for ever.
    ChatTemplateLimits limits;
    limits.render = std::chrono::hours(1);
    const ChatTemplate t(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "", "",
        limits);
    const pid_t helper = children().at(0);
    if (write(fds[1], &helper, sizeof helper) != sizeof helper) _exit(1);
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      _exit(0);
    }).detach();
    t.render(kHello, false);
    _exit(1);
  }
  pid_t helper = 0;
  ASSERT_EQ(read(fds[0], &helper, sizeof helper), static_cast<ssize_t>(sizeof helper));
  int status = 0;
  waitpid(middle, &status, 0);
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    std::ifstream stat("/proc/" + std::to_string(helper) + "/stat");
    std::string word, state;
    // Gone, or a zombie that waits for init.
    gone = !(stat >> word >> word >> state) || state == "Z";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(gone);
  close(fds[0]);
  close(fds[1]);
}

TEST(NamedTemplates, GiveTheTextThatLlamaCppGives) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/text/data/named_templates.json");
  const Json record = Json::parse(file);
  std::optional<ChatTemplate> t;
  std::string name;
  for (const Json& c : record["cases"]) {
    if (c["template"] != name) {
      name = c["template"];
      t.emplace(std::string(named_chat_template(name).value()), "<s>", "</s>");
    }
    EXPECT_EQ(t->render(c["messages"], c["add_generation_prompt"]), c["text"].get<std::string>())
        << name << " " << c.dump();
  }
  for (const std::string_view known : named_chat_templates()) {
    EXPECT_TRUE(std::any_of(record["cases"].begin(), record["cases"].end(),
                            [&](const Json& c) { return c["template"] == known; }))
        << known << " was not recorded";
  }
}

gguf::File file_with(const std::optional<std::string>& chat_template) {
  gguf::Writer writer;
  writer.add_string("general.architecture", "none");
  if (chat_template) writer.add_string("tokenizer.chat_template", *chat_template);
  return gguf::File::from_memory(std::make_shared<const std::vector<std::byte>>(writer.to_memory()),
                                 "made.gguf");
}

TEST(ChatTemplateForModel, ChoosesTheFilesOwnOrTheNamedOne) {
  const Tokenizer tokenizer(SyntheticVocabulary::spm(false).source());
  const auto with = file_with("own {{ bos_token }}"), without = file_with(std::nullopt);
  EXPECT_EQ(ChatTemplate::for_model(with, tokenizer, std::nullopt).render(kHello, false),
            "own <s>");
  EXPECT_EQ(ChatTemplate::for_model(with, tokenizer, "gemma").render(kHello, true),
            "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(
      ChatTemplate::for_model(without, tokenizer, "given {{ eos_token }}").render(kHello, false),
      "given </s>");
  const Failure none =
      failure_of([&] { ChatTemplate::for_model(without, tokenizer, std::nullopt); });
  EXPECT_EQ(none.code, ExitCode::bad_use);
  EXPECT_EQ(
      none.message.find(
          "made.gguf: the file has no chat template (a base model has none); give a plain prompt, "
          "or name one with --chat-template (chatml, gemma, "),
      0u)
      << none.message;
  const Failure unknown = failure_of([&] { ChatTemplate::for_model(with, tokenizer, "chatlm"); });
  EXPECT_EQ(unknown.message.find("--chat-template \"chatlm\" is no name (chatml, "), 0u)
      << unknown.message;
}

TEST(EncodeChat, BosComesOnce) {
  auto v = SyntheticVocabulary::spm(false);
  v.source().add_eos = true;
  const Tokenizer t(v.source());
  const std::vector<int32_t> ids = encode_chat(t, "<s>ab</s>");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], t.bos());
  EXPECT_EQ(ids[2], t.eos());
  EXPECT_EQ(encode_chat(t, "ab"), ids);
}

// The template inside the model file, where that is at hand.
TEST(RealTemplates, SmolLm2) {
  const char* folder = std::getenv("LOCKSTEP_MODELS");
  const fs::path path =
      fs::path(folder ? folder : LOCKSTEP_SOURCE_DIR "/models") / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(path)) {
    ASSERT_EQ(folder, nullptr) << path << " is not there";  // named, so a skip would hide it
    GTEST_SKIP() << path << " is not there";
  }
  const gguf::File file = gguf::File::open(path);
  const Tokenizer tokenizer = Tokenizer::load(file);
  const ChatTemplate t = ChatTemplate::for_model(file, tokenizer, std::nullopt);
  const std::string text = t.render(kHello, true);
  EXPECT_EQ(text,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  const std::vector<int32_t> ids = encode_chat(tokenizer, text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 3);  // <|im_start|>
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);  // <|im_end|>
  EXPECT_EQ(tokenizer.decode(ids, true), text);
}

// Qwen's own, where a llama.cpp tree is at hand: ChatML, with or without a default system message,
// and Qwen 3's switch for thinking.
TEST(RealTemplates, Qwen) {
  const char* folder = std::getenv("LOCKSTEP_CHAT_TEMPLATES");
  if (!folder) GTEST_SKIP() << "LOCKSTEP_CHAT_TEMPLATES is not set (llama.cpp's models/templates)";
  const auto render = [&](const char* name, const Json& messages, const Json& extra) {
    const fs::path path = fs::path(folder) / name;
    std::ifstream file(path);
    EXPECT_TRUE(file.is_open()) << path;
    std::stringstream source;
    source << file.rdbuf();
    return ChatTemplate(source.str(), "", "<|im_end|>").render(messages, true, extra);
  };
  const std::string turn = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(render("Qwen-Qwen2.5-7B-Instruct.jinja", kHello, Json::object()),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n" +
                turn);
  EXPECT_EQ(render("Qwen-Qwen3-0.6B.jinja", kHello, Json::object()), turn);
  EXPECT_EQ(render("Qwen-Qwen3-0.6B.jinja", kHello, {{"enable_thinking", false}}),
            turn + "<think>\n\n</think>\n\n");
  // What was thought is no part of the history.
  const Json history = {{{"role", "user"}, {"content", "Hello"}},
                        {{"role", "assistant"}, {"content", "<think>\nhm\n</think>\n\nHi"}},
                        {{"role", "user"}, {"content", "Hello"}}};
  EXPECT_EQ(render("Qwen-Qwen3-0.6B.jinja", history, Json::object()),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n" + turn);
}

// The real templates of many families, where a llama.cpp tree is at hand: each must compile, and
// render (some only with tools), or refuse in its own words.
TEST(RealTemplates, CompileAndRender) {
  const char* folder = std::getenv("LOCKSTEP_CHAT_TEMPLATES");
  if (!folder) GTEST_SKIP() << "LOCKSTEP_CHAT_TEMPLATES is not set (llama.cpp's models/templates)";
  const Json messages = {{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "user"}, {"content", "What is 2+2?"}},
                         {{"role", "assistant"}, {"content", "4"}},
                         {{"role", "user"}, {"content", "Why?"}}};
  const Json parameters = {{"type", "object"},
                           {"properties", {{"x", {{"type", "string"}, {"description", "X"}}}}},
                           {"required", {"x"}}};
  const Json tools = {
      {{"type", "function"},
       {"function", {{"name", "f"}, {"description", "F"}, {"parameters", parameters}}}}};
  int rendered = 0, with_tools = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    std::stringstream source;
    source << file.rdbuf();
    const ChatTemplate t(source.str(), "<s>", "</s>");
    std::string text;
    Failure f = failure_of([&] { text = t.render(messages, true); });
    ++rendered;
    if (f.code == ExitCode::bad_file) {
      f = failure_of([&] {
        text = t.render(messages, true,
                        {{"tools", tools}, {"functions", "f(x)"}, {"datetime", "today"}});
      });
      ++with_tools;
    }
    if (f.code == ExitCode::bad_use) {
      ++refused;
      continue;
    }
    EXPECT_EQ(f.code, ExitCode::ok) << entry.path() << ": " << f.message;
    EXPECT_NE(text.find("Why?"), std::string::npos) << entry.path();
  }
  std::printf("%d templates, %d of them only with tools, %d refused the messages\n", rendered,
              with_tools, refused);
  EXPECT_GT(rendered, 20);
}

}  // namespace
}  // namespace lockstep::text
