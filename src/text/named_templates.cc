// The built-in chat templates. Each gives, for messages with a role and a text, the text that
// llama.cpp b11434 gives under the same name (tests/text/data/named_templates.json); none writes
// BOS, which the tokenizer adds.
#include <array>
#include <utility>

#include "text/chat_template.h"

namespace lockstep::text {
namespace {

using Named = std::pair<std::string_view, std::string_view>;

constexpr Named kTemplates[] = {
    {"chatml", R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})"},

    {"gemma", R"({%- set held = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set held.system = held.system + message.content | trim -%}
{%- else -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\n' }}
{%- if held.system and role != 'model' -%}
{{ held.system + '\n\n' }}
{%- set held.system = '' -%}
{%- endif -%}
{{ message.content | trim + '<end_of_turn>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})"},

    {"llama2", R"({%- set turn = namespace(open=true) -%}
{{ '[INST] ' }}
{%- for message in messages -%}
{%- if not turn.open -%}{{ '[INST] ' }}{%- set turn.open = true -%}{%- endif -%}
{%- if message.role == 'system' -%}{{ message.content + '\n' }}
{%- elif message.role == 'user' -%}{{ message.content + ' [/INST]' }}
{%- else -%}{{ message.content + '</s>' }}{%- set turn.open = false -%}
{%- endif -%}
{%- endfor -%})"},

    {"llama2-sys", R"({%- set turn = namespace(open=true) -%}
{{ '[INST] ' }}
{%- for message in messages -%}
{%- if not turn.open -%}{{ '[INST] ' }}{%- set turn.open = true -%}{%- endif -%}
{%- if message.role == 'system' -%}{{ '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' }}
{%- elif message.role == 'user' -%}{{ message.content + ' [/INST]' }}
{%- else -%}{{ message.content + '</s>' }}{%- set turn.open = false -%}
{%- endif -%}
{%- endfor -%})"},

    {"llama3", R"({%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%})"},

    {"mistral-v1", R"({%- set turn = namespace(open=false) -%}
{%- for message in messages -%}
{%- if not turn.open -%}{{ ' [INST] ' }}{%- set turn.open = true -%}{%- endif -%}
{%- if message.role == 'system' -%}{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}{{ message.content + ' [/INST]' }}
{%- else -%}{{ ' ' + message.content + '</s>' }}{%- set turn.open = false -%}
{%- endif -%}
{%- endfor -%})"},

    {"mistral-v3", R"({%- set turn = namespace(open=false) -%}
{%- for message in messages -%}
{%- if not turn.open -%}{{ '[INST] ' }}{%- set turn.open = true -%}{%- endif -%}
{%- if message.role == 'system' -%}{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}{{ message.content + '[/INST]' }}
{%- else -%}{{ ' ' + message.content | trim + '</s>' }}{%- set turn.open = false -%}
{%- endif -%}
{%- endfor -%})"},

    {"mistral-v3-tekken", R"({%- set turn = namespace(open=false) -%}
{%- for message in messages -%}
{%- if not turn.open -%}{{ '[INST]' }}{%- set turn.open = true -%}{%- endif -%}
{%- if message.role == 'system' -%}{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}{{ message.content + '[/INST]' }}
{%- else -%}{{ message.content + '</s>' }}{%- set turn.open = false -%}
{%- endif -%}
{%- endfor -%})"},

    {"mistral-v7", R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ '[SYSTEM_PROMPT] ' + message.content + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' -%}{{ '[INST] ' + message.content + '[/INST]' }}
{%- else -%}{{ ' ' + message.content + '</s>' }}
{%- endif -%}
{%- endfor -%})"},

    {"mistral-v7-tekken", R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' -%}{{ '[INST]' + message.content + '[/INST]' }}
{%- else -%}{{ message.content + '</s>' }}
{%- endif -%}
{%- endfor -%})"},

    {"phi3", R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})"},

    {"phi4", R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '<|im_sep|>' + message.content + '<|im_end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif -%})"},

    {"falcon3", R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})"},

    {"zephyr", R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|endoftext|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})"},

    {"vicuna", R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{ message.content + '\n\n' }}
{%- elif message.role == 'user' -%}{{ 'USER: ' + message.content + '\n' }}
{%- elif message.role == 'assistant' -%}{{ 'ASSISTANT: ' + message.content + '</s>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%})"},
};

}  // namespace

std::optional<std::string_view> named_chat_template(std::string_view name) {
  for (const auto& [known, source] : kTemplates) {
    if (known == name) return source;
  }
  return std::nullopt;
}

std::vector<std::string_view> named_chat_templates() {
  std::vector<std::string_view> names;
  for (const auto& [name, source] : kTemplates) names.push_back(name);
  return names;
}

}  // namespace lockstep::text
