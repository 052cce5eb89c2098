#include "flag_table.h"

#include <fmt/format.h>

#include "lab/lab.h"

namespace lockstep::app {
namespace {

constexpr FlagKind kUsed = FlagKind::used, kNoted = FlagKind::noted, kRefused = FlagKind::refused;

// Those that decode for one person.
constexpr std::string_view kNotServe = "run prove eval bench inspect tokenize synth flags";

// Names, short forms and variables are llama.cpp b11434's where the same thing exists there.
// One flag a line keeps the table readable as a table.
// clang-format off
constexpr Flag kFlags[] = {
    // The model and the machine.
    {"-m --model", "FILE", "LLAMA_ARG_MODEL", kUsed, "run prove eval bench inspect tokenize serve",
     "the model: a GGUF file (of a split set, the first part), or synth:SPEC"},
    {"-t --threads", "N", "LLAMA_ARG_THREADS", kUsed, "run prove eval serve",
     "worker threads (default, and -1: one a core)"},
    {"-t --threads", "N,N...", "LLAMA_ARG_THREADS", kUsed, "bench",
     "worker threads, a list: every test with each (default, and -1: one a core)"},
    {"--isa", "NAME", "", kUsed, "run eval bench serve",
     "kernels to use: scalar, scalar-v3, avx2, avx512, amx (default: the best this CPU has); the same bits"},
    {"--isa", "NAME", "", kUsed, "prove",
     "kernels of the plain arm, as of run (default, and all: the best); every other that this CPU has is compared"},
    {"-dev --device", "NAME", "LLAMA_ARG_DEVICE", kUsed, "run prove eval bench serve",
     "where to compute: cpu (default), cuda, cuda:N (the Nth CUDA device from 0); the same bits"},
    {"-dev --device", "NAME", "LLAMA_ARG_DEVICE", kUsed, "inspect",
     "the device whose read bandwidth --bandwidth measures, as of run (default: cpu)"},
    {"--kernels", "NAME", "", kUsed, "run prove eval bench serve",
     "code of a CUDA device: own (default), or portable (compute_80, compiled by the driver at start); the same bits"},
    {"--against", "DEVICE", "", kUsed, "prove",
     "compute the plain arm there instead, and compare with it what --device computes: --device cuda --against cpu"},
    {"-c --ctx-size", "N", "LLAMA_ARG_CTX_SIZE", kUsed, "run eval",
     "positions of the context (default: the model's, but no more than 1 GiB of KV; 0: the model's)"},
    {"-ub --ubatch-size", "N", "LLAMA_ARG_UBATCH", kUsed, "run eval serve",
     "prompt rows in a pass, 1 to 512 (default: 64); the same bits"},
    {"-b -ub --batch-size --ubatch-size", "N", "LLAMA_ARG_UBATCH", kUsed, "bench",
     "prompt rows in a pass, 1 to 512 (default: 512)"},
    {"-ctk --cache-type-k", "TYPE", "LLAMA_ARG_CACHE_TYPE_K", kUsed, "run prove eval bench serve",
     "type of the remembered keys: f32, f16, q8_0, q4_0 (default: f16)"},
    {"-ctv --cache-type-v", "TYPE", "LLAMA_ARG_CACHE_TYPE_V", kUsed, "run prove eval bench serve",
     "type of the remembered values: f32, f16, q8_0, q4_0 (default: f16)"},
    {"--json", "", "", kUsed, "run prove eval bench inspect tokenize synth flags",
     "print one JSON object (docs/json.md) instead of text"},

    // The server.
    {"--host", "ADDRESS", "LLAMA_ARG_HOST", kUsed, "serve",
     "the address to listen on (default: 127.0.0.1, this machine alone; 0.0.0.0: all)"},
    {"--port", "N", "LLAMA_ARG_PORT", kUsed, "serve", "the port to listen on (default: 8080; 0: any free one, printed)"},
    {"--api-key", "KEY", "LLAMA_API_KEY", kUsed, "serve",
     "ask clients for this key; several with commas between them (default: none is asked for)"},
    {"-a --alias", "NAME", "LLAMA_ARG_ALIAS", kUsed, "serve",
     "what the model is called (default: the file's name)"},
    {"-np --parallel", "N", "LLAMA_ARG_N_PARALLEL", kUsed, "serve",
     "slots: answers decoded together, 1 to 64 (default: 4)"},
    {"-c --ctx-size", "N", "LLAMA_ARG_CTX_SIZE", kUsed, "serve",
     "positions of the KV pool that all answers share; one may use as many as the model was trained on (default: that times -np, or what fits half of the free memory; 0: that times -np)"},
    {"--queue", "N", "", kUsed, "serve",
     "requests that may wait for a slot; more get 503 (default: 64)"},
    {"--reasoning-format", "NAME", "LLAMA_ARG_THINK", kUsed, "serve",
     "what becomes of thoughts where a chat does not say: deepseek (apart, as reasoning_content), none (left in the content), auto (as deepseek; default)"},
    {"--cors-origins", "ORIGINS", "LLAMA_ARG_CORS_ORIGINS", kUsed, "serve",
     "origins of web pages that may read answers, with commas between them; \"localhost\": this machine's; \"*\": any (default: none)"},
    {"--ssl-key-file", "FILE", "LLAMA_ARG_SSL_KEY_FILE", kUsed, "serve",
     "speak TLS alone, with this private key, PEM without a password; needs --ssl-cert-file"},
    {"--ssl-cert-file", "FILE", "LLAMA_ARG_SSL_CERT_FILE", kUsed, "serve",
     "the key's certificate, PEM, with its chain"},
    {"--no-webui --no-ui", "", "LLAMA_ARG_NO_WEBUI", kUsed, "serve", "no chat page at /"},
    {"--log-jsonl", "", "LLAMA_ARG_LOG_JSONL", kUsed, "serve",
     "write the log as JSON, an object a line (docs/server.md)"},

    // What to say, and how.
    {"-p --prompt", "TEXT", "", kUsed, "run prove tokenize",
     "the prompt; with -cnv the first message"},
    {"-f --file", "FILE", "", kUsed, "run prove eval tokenize", "read the prompt (eval: the text) from a file"},
    {"-e --escape", "", "", kUsed, "run tokenize",
     "process \\n \\r \\t \\' \\\" \\\\ \\xHH in -p, -f, -sys and -r (default)"},
    {"--no-escape", "", "", kUsed, "run tokenize", "take them as they are"},
    {"-cnv --conversation", "", "", kUsed, "run",
     "chat with the model's template (default: when no prompt is given on a terminal)"},
    {"-no-cnv --no-conversation", "", "", kUsed, "run", "never chat: complete the prompt"},
    {"-st --single-turn", "", "", kUsed, "run", "with -cnv: one answer, then exit"},
    {"-sys --system-prompt", "TEXT", "", kUsed, "run", "with -cnv: the system message"},
    {"-sysf --system-prompt-file", "FILE", "", kUsed, "run", "with -cnv: read it from a file"},
    {"--chat-template", "JINJA", "LLAMA_ARG_CHAT_TEMPLATE", kUsed, "run serve",
     "with -cnv, and serve: this template text instead of the model's"},
    {"--chat-template-file", "FILE", "LLAMA_ARG_CHAT_TEMPLATE_FILE", kUsed, "run serve",
     "with -cnv, and serve: read the template from a file"},
    {"-r --reverse-prompt", "TEXT", "", kUsed, "run",
     "stop before this text appears (may be given again)"},
    {"--ignore-eos", "", "", kUsed, "run serve", "never choose an end-of-generation token"},
    {"-n --predict --n-predict", "N", "LLAMA_ARG_N_PREDICT", kUsed, "run prove serve",
     "tokens to generate (run, and serve where a request says nothing: default -1, to the end of the context; -2 means the same)"},
    {"--display-prompt", "", "", kUsed, "run", "print the prompt before its completion (default)"},
    {"--no-display-prompt", "", "", kUsed, "run", "print the completion alone"},
    {"-sp --special", "", "", kUsed, "run", "print special tokens too"},

    // Sampling.
    {"-s --seed", "N", "", kUsed, "run prove serve", "seed of the noise (run: default -1, one is drawn and printed; serve: for requests that name none)"},
    {"--temp --temperature", "X", "LLAMA_ARG_TEMPERATURE", kUsed, "run serve",
     "temperature (default: 0.8; 0 takes the most probable token)"},
    {"--top-k", "N", "", kUsed, "run serve", "keep the N most probable tokens (default: 40; 0: off)"},
    {"--top-p", "X", "", kUsed, "run serve", "keep the most probable tokens that sum to X (default: 0.95; 1: off)"},
    {"--min-p", "X", "", kUsed, "run serve",
     "keep tokens with at least X of the greatest probability (default: 0.05; 0: off)"},
    {"--repeat-last-n", "N", "", kUsed, "run serve", "tokens that the penalties look at (default: 64; 0: off, -1: all)"},
    {"--repeat-penalty", "X", "LLAMA_ARG_REPEAT_PENALTY", kUsed, "run serve",
     "divide the logits of repeated tokens (default: 1, off)"},
    {"--presence-penalty", "X", "LLAMA_ARG_PRESENCE_PENALTY", kUsed, "run serve",
     "take from the logits of tokens that occurred (default: 0)"},
    {"--frequency-penalty", "X", "LLAMA_ARG_FREQUENCY_PENALTY", kUsed, "run serve",
     "take from the logits for each time they occurred (default: 0)"},
    {"-l --logit-bias", "ID(+/-)X", "", kUsed, "run serve",
     "add to one token's logit: 15043+1, 15043-1, 15043-inf (may be given again)"},
    {"--samplers", "LIST", "", kUsed, "run serve",
     "order of the stages (default: penalties;top_k;top_p;min_p;temperature)"},

    // Drafts. Whatever they are, the answer is the same.
    {"-md --model-draft --spec-draft-model", "FILE", "LLAMA_ARG_SPEC_DRAFT_MODEL", kUsed, "run prove serve",
     "a small model of the same vocabulary that drafts"},
    {"--spec-type", "LIST", "LLAMA_ARG_SPEC_TYPE", kUsed, "run serve",
     "draft sources by priority: ngram, suffix, model, none; chain:a+b lets b draft on from where a stopped (default: model with -md, else none)"},
    {"--spec-draft-n-max", "N|auto", "LLAMA_ARG_SPEC_DRAFT_N_MAX", kUsed, "run serve",
     "tokens drafted at most in a step; auto: as many as go fastest by what was measured so far, 0 to 15 (default)"},
    {"--spec-draft-n-min", "N", "LLAMA_ARG_SPEC_DRAFT_N_MIN", kUsed, "run serve",
     "drafts shorter than this are not verified (default: 0)"},
    {"--spec-draft-p-min --draft-p-min", "X", "LLAMA_ARG_SPEC_DRAFT_P_MIN", kUsed, "run serve",
     "a draft ends before the first token with less confidence (default: 0)"},

    // tokenize.
    {"--ids", "", "", kUsed, "tokenize", "print the ids alone, as one list"},
    {"--ids", "FILE", "", kUsed, "eval", "a JSON list of lists of token ids, used as given"},
    {"--stdin", "", "", kUsed, "tokenize", "read the text from standard input"},
    {"--no-bos", "", "", kUsed, "tokenize", "add no BOS token"},
    {"--no-parse-special", "", "", kUsed, "tokenize", "read special tokens' names as plain text"},
    {"--show-count", "", "", kUsed, "tokenize", "print the number of tokens too"},

    // eval, inspect, synth, prove.
    {"--top", "N", "", kUsed, "eval", "also give the N most probable tokens of each position"},
    {"--kl", "FILE", "", kUsed, "eval", "compare with a result saved by eval --json --top N"},
    {"--bandwidth", "[GB/S]", "", kUsed, "inspect",
     "give the ceiling of tokens a second at this read bandwidth (without a number: as measured now)"},
    {"-o --output", "FILE", "", kUsed, "synth", "the file to write"},
    {"--quick", "", "", kUsed, "prove", "a short form, about a minute a small model"},
    {"--only", "TEXT", "", kUsed, "prove", "only configurations whose name contains this"},
    {"--corrupt", "", "", kUsed, "prove", "negative control: plant 20 faults; exit 1 when all were found"},

    // bench. Names are llama-bench's where it has the same.
    {"-p --n-prompt", "N,N...", "", kUsed, "bench", "tokens of the prompt tests, a list (default: 512; 0: none)"},
    {"-n --n-gen", "N,N...", "", kUsed, "bench",
     "tokens of the generation tests, one a pass, a list (default: 128; 0: none)"},
    {"-w --widths", "N,N...", "", kUsed, "bench",
     "verify widths, a list: rows of one pass, all of which want logits (default: 1,2,4,8,16; \"none\": none)"},
    {"-d --n-depth", "N,N...", "", kUsed, "bench",
     "positions already remembered, a list: every test at each (default: 0)"},
    {"-r --repetitions", "N", "", kUsed, "bench", "repetitions of every test (default: 5)"},
    {"-o --output", "FORMAT", "", kUsed, "bench", "md (default), csv, json (what --json means), jsonl (a row a line)"},
    {"--ops", "", "", kUsed, "bench", "time, bytes and GB/s of every op too, in passes of their own"},
    {"--trace", "FILE", "", kUsed, "bench",
     "write every op of some passes as Chrome trace events, which Perfetto opens"},
    {"--slow-below", "GB/S", "", kUsed, "bench",
     "label rows \"slow\" where the bandwidth read beside them is below this, else \"fast\""},

    // Accepted with a note.
    {"-cb --cont-batching", "", "LLAMA_ARG_CONT_BATCHING", kNoted, "serve", "answers are always decoded together"},
    {"-nocb --no-cont-batching", "", "", kNoted, "serve", "answers are always decoded together; it changes none of them"},
    {"-kvu --kv-unified", "", "LLAMA_ARG_KV_UNIFIED", kNoted, "serve", "the KV pool is always one"},
    {"-no-kvu --no-kv-unified", "", "", kNoted, "serve", "the KV pool is always one; pages for a whole answer are reserved"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints", "N", "LLAMA_ARG_CTX_CHECKPOINTS", kNoted, "serve", "a slot keeps the state of its last answer"},
    {"-cram --cache-ram", "N", "LLAMA_ARG_CACHE_RAM", kNoted, "serve", "a slot keeps the state of its last answer, in the KV pool"},
    {"-sps --slot-prompt-similarity", "X", "", kNoted, "serve", "what was computed before is found whatever slot it was in"},
    {"-to --timeout", "N", "LLAMA_ARG_TIMEOUT", kNoted, "serve", "the time-outs are those of docs/server.md"},
    {"--threads-http", "N", "LLAMA_ARG_THREADS_HTTP", kNoted, "serve", "one thread reads and writes for all clients"},
    {"--metrics", "", "LLAMA_ARG_ENDPOINT_METRICS", kNoted, "serve", "/metrics is always there"},
    {"--slots", "", "LLAMA_ARG_ENDPOINT_SLOTS", kNoted, "serve", "/slots is always there"},
    {"--cache-prompt", "", "LLAMA_ARG_CACHE_PROMPT", kNoted, "serve", "prompts are reused where a request does not say otherwise"},
    {"-ngl --gpu-layers --n-gpu-layers", "N", "LLAMA_ARG_N_GPU_LAYERS", kNoted, "", "--device says where everything is computed"},
    {"-ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft", "N", "LLAMA_ARG_N_GPU_LAYERS_DRAFT", kNoted, "", "--device says where everything is computed"},
    {"-sm --split-mode", "MODE", "LLAMA_ARG_SPLIT_MODE", kNoted, "", "--device says where everything is computed"},
    {"-ts --tensor-split", "LIST", "LLAMA_ARG_TENSOR_SPLIT", kNoted, "", "--device says where everything is computed"},
    {"-mg --main-gpu", "N", "LLAMA_ARG_MAIN_GPU", kNoted, "", "--device says where everything is computed"},
    {"-dev --device", "LIST", "LLAMA_ARG_DEVICE", kNoted, "tokenize synth flags", "nothing is computed here"},
    {"-devd --spec-draft-device --device-draft", "LIST", "", kNoted, "", "--device says where everything is computed"},
    {"-fit --fit", "ON", "LLAMA_ARG_FIT", kNoted, "", "nothing is placed on devices"},
    {"-fitt --fit-target", "LIST", "LLAMA_ARG_FIT_TARGET", kNoted, "", "nothing is placed on devices"},
    {"-fitc --fit-ctx", "N", "LLAMA_ARG_FIT_CTX", kNoted, "", "nothing is placed on devices"},
    {"-kvo --kv-offload", "", "LLAMA_ARG_KV_OFFLOAD", kNoted, "", "KV pages are where --device computes"},
    {"-nkvo --no-kv-offload", "", "", kNoted, "", "KV pages are where --device computes"},
    {"--op-offload", "", "", kNoted, "", "--device says where everything is computed"},
    {"--no-op-offload", "", "", kNoted, "", "--device says where everything is computed"},
    {"-ot --override-tensor", "LIST", "LLAMA_ARG_OVERRIDE_TENSOR", kNoted, "", "tensors stay in the mapped file"},
    {"-cmoe --cpu-moe", "", "LLAMA_ARG_CPU_MOE", kNoted, "", "everything is on the CPU"},
    {"-ncmoe --n-cpu-moe", "N", "LLAMA_ARG_N_CPU_MOE", kNoted, "", "everything is on the CPU"},
    {"-ncffn --n-cpu-ffn", "N", "LLAMA_ARG_N_CPU_FFN", kNoted, "", "everything is on the CPU"},
    {"-fa --flash-attn", "[on|off|auto]", "LLAMA_ARG_FLASH_ATTN", kNoted, "", "attention has one definition here; nothing to choose"},
    {"-b --batch-size", "N", "LLAMA_ARG_BATCH", kNoted, "run prove eval inspect tokenize synth flags serve", "-ub sets the rows of a prompt pass"},
    {"-np --parallel", "N", "LLAMA_ARG_N_PARALLEL", kNoted, kNotServe, "one request is decoded"},
    {"-ns --sequences", "N", "", kNoted, "", "one request is decoded"},
    {"-cb --cont-batching", "", "LLAMA_ARG_CONT_BATCHING", kNoted, kNotServe, "one request is decoded"},
    {"-nocb --no-cont-batching", "", "", kNoted, kNotServe, "one request is decoded"},
    {"-kvu --kv-unified", "", "LLAMA_ARG_KV_UNIFIED", kNoted, kNotServe, "one request is decoded"},
    {"-no-kvu --no-kv-unified", "", "", kNoted, kNotServe, "one request is decoded"},
    {"--swa-full", "", "LLAMA_ARG_SWA_FULL", kNoted, "", "sliding layers keep what an exact rollback needs"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints", "N", "LLAMA_ARG_CTX_CHECKPOINTS", kNoted, kNotServe, "state is kept for one conversation"},
    {"-cram --cache-ram", "N", "LLAMA_ARG_CACHE_RAM", kNoted, kNotServe, "state is kept for one conversation"},
    {"-dt --defrag-thold", "X", "LLAMA_ARG_DEFRAG_THOLD", kNoted, "", "pages do not fragment"},
    {"-tb --threads-batch", "N", "", kNoted, "", "-t sets the threads of every pass"},
    {"-td --spec-draft-threads --threads-draft", "N", "", kNoted, "", "-t sets the threads of every pass"},
    {"-tbd --spec-draft-threads-batch --threads-batch-draft", "N", "", kNoted, "", "-t sets the threads of every pass"},
    {"-C --cpu-mask", "M", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"-Cr --cpu-range", "LO-HI", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"-Cb --cpu-mask-batch", "M", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"-Crb --cpu-range-batch", "LO-HI", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"--cpu-strict", "N", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"--cpu-strict-batch", "N", "", kNoted, "", "use taskset; threads do not change the answer"},
    {"--prio", "N", "", kNoted, "", "use nice"},
    {"--prio-batch", "N", "", kNoted, "", "use nice"},
    {"--poll", "N", "", kNoted, "", "workers sleep between passes"},
    {"--poll-batch", "N", "", kNoted, "", "workers sleep between passes"},
    {"--numa", "TYPE", "LLAMA_ARG_NUMA", kNoted, "", "use numactl"},
    {"--mlock", "", "LLAMA_ARG_MLOCK", kNoted, "", "the file is mapped; the system keeps what is read often"},
    {"--mmap", "", "LLAMA_ARG_MMAP", kNoted, "", "the file is always mapped"},
    {"--no-mmap", "", "LLAMA_ARG_NO_MMAP", kNoted, "", "the file is always mapped"},
    {"-lm --load-mode", "MODE", "LLAMA_ARG_LOAD_MODE", kNoted, "", "the file is always mapped"},
    {"-lzm --lazy-mode", "MODE", "LLAMA_ARG_LAZY_MODE", kNoted, "", "the file is always mapped"},
    {"-dio --direct-io", "", "LLAMA_ARG_DIO", kNoted, "", "the file is always mapped"},
    {"--repack", "", "LLAMA_ARG_REPACK", kNoted, "", "weights are read as the file has them"},
    {"-nr --no-repack", "", "", kNoted, "", "weights are read as the file has them"},
    {"--no-host", "", "LLAMA_ARG_NO_HOST", kNoted, "", "--device says where everything is computed"},
    {"--check-tensors", "", "", kNoted, "", "tensors are always checked"},
    {"--keep", "N", "", kNoted, "", "the context is never shifted, so all of the prompt is kept"},
    {"--no-context-shift", "", "", kNoted, "", "the context is never shifted"},
    {"--warmup", "", "", kNoted, "", "bench alone has a warm-up pass, and always"},
    {"--no-warmup", "", "", kNoted, "", "bench alone has a warm-up pass, and always"},
    {"--perf", "", "LLAMA_ARG_PERF", kNoted, "", "the closing line always has the figures"},
    {"--no-perf", "", "", kNoted, "", "the closing line always has the figures"},
    {"--show-timings", "", "LLAMA_ARG_SHOW_TIMINGS", kNoted, "", "the closing line always has the figures"},
    {"--no-show-timings", "", "", kNoted, "", "the closing line always has the figures"},
    {"-ptc --print-token-count", "N", "", kNoted, "", "the closing line has the count"},
    {"-i --interactive", "", "", kNoted, "", "without a prompt on a terminal, run is a chat"},
    {"-if --interactive-first", "", "", kNoted, "", "without a prompt on a terminal, run is a chat"},
    {"-mli --multiline-input", "", "", kNoted, "", "end a line with a backslash to go on in the next"},
    {"-co --color", "[on|off|auto]", "", kNoted, "", "output has no colours"},
    {"--simple-io", "", "", kNoted, "", "input and output are always plain"},
    {"--jinja", "", "LLAMA_ARG_JINJA", kNoted, "", "chat templates are always rendered by Jinja"},
    {"--reasoning-format", "NAME", "LLAMA_ARG_THINK", kNoted, kNotServe, "the text is printed as the model writes it"},
    {"--skip-chat-parsing", "", "LLAMA_ARG_SKIP_CHAT_PARSING", kNoted, "", "the text is printed as the model writes it"},
    {"--no-skip-chat-parsing", "", "", kNoted, "", "the text is printed as the model writes it"},
    {"--log-disable", "", "", kNoted, "", "there is no log but what goes to standard error"},
    {"--log-file", "FILE", "LLAMA_ARG_LOG_FILE", kNoted, "", "there is no log but what goes to standard error"},
    {"--log-colors", "[on|off|auto]", "LLAMA_ARG_LOG_COLORS", kNoted, "", "there is no log but what goes to standard error"},
    {"--log-prefix", "", "LLAMA_ARG_LOG_PREFIX", kNoted, "", "there is no log but what goes to standard error"},
    {"--no-log-prefix", "", "", kNoted, "", "there is no log but what goes to standard error"},
    {"--log-timestamps", "", "LLAMA_ARG_LOG_TIMESTAMPS", kNoted, "", "there is no log but what goes to standard error"},
    {"--no-log-timestamps", "", "", kNoted, "", "there is no log but what goes to standard error"},
    {"-v --verbose --log-verbose", "", "", kNoted, "", "there is no log but what goes to standard error"},
    {"-lv --verbosity --log-verbosity", "N", "LLAMA_ARG_LOG_VERBOSITY", kNoted, "", "there is no log but what goes to standard error"},
    {"--verbose-prompt", "", "", kNoted, "", "lockstep tokenize shows a prompt's tokens"},
    {"--offline", "", "LLAMA_ARG_OFFLINE", kNoted, "", "nothing is ever fetched"},
    {"-bs --backend-sampling", "", "LLAMA_ARG_BACKEND_SAMPLING", kNoted, "", "the sampler has one definition here"},
    {"--spec-draft-backend-sampling", "", "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING", kNoted, "", "the sampler has one definition here"},
    {"--no-spec-draft-backend-sampling", "", "", kNoted, "", "the sampler has one definition here"},
    {"-ctkd --spec-draft-type-k --cache-type-k-draft", "TYPE", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", kNoted, "", "the draft model's KV is f16; it cannot change the answer"},
    {"-ctvd --spec-draft-type-v --cache-type-v-draft", "TYPE", "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", kNoted, "", "the draft model's KV is f16; it cannot change the answer"},
    {"--spec-draft-p-split --draft-p-split", "X", "LLAMA_ARG_SPEC_DRAFT_P_SPLIT", kNoted, "", "drafts are single lines, not trees"},
    {"--spec-ngram-simple-size-n", "N", "", kNoted, "", "ngram tries every length it keeps, longest first"},
    {"--spec-ngram-simple-size-m", "N", "", kNoted, "", "--spec-draft-n-max sets the length of a draft"},
    {"--spec-ngram-simple-min-hits", "N", "", kNoted, "", "ngram drafts from the latest match"},

    // Refused by name.
    {"--no-slots", "", "LLAMA_ARG_NO_ENDPOINT_SLOTS", kRefused, "serve", "/slots is always there; ask for a key with --api-key"},
    {"--no-cache-prompt", "", "LLAMA_ARG_NO_CACHE_PROMPT", kRefused, "serve", "say cache_prompt false in the request"},
    {"--cache-reuse", "N", "LLAMA_ARG_CACHE_REUSE", kRefused, "serve", "state that is moved is not what computing gives; a prompt's beginning is reused as it is", "0"},
    {"--slot-save-path", "PATH", "LLAMA_ARG_SLOT_SAVE_PATH", kRefused, "serve", "state is not kept in files"},
    {"--api-key-file", "FILE", "", kRefused, "serve", "give the key with --api-key or in LLAMA_API_KEY"},
    {"--api-prefix", "PATH", "LLAMA_ARG_API_PREFIX", kRefused, "serve", "routes have no prefix; let a proxy take it off"},
    {"--path", "PATH", "LLAMA_ARG_STATIC_PATH", kRefused, "serve", "no files are served"},
    {"--embedding --embeddings", "", "LLAMA_ARG_EMBEDDINGS", kRefused, "serve", "embeddings are not made here"},
    {"--rerank --reranking", "", "LLAMA_ARG_RERANKING", kRefused, "serve", "nothing is ranked here"},
    {"-hf -hfr --hf-repo", "REPO", "LLAMA_ARG_HF_REPO", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -m"},
    {"-hff --hf-file", "FILE", "LLAMA_ARG_HF_FILE", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -m"},
    {"-hft --hf-token", "TOKEN", "", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -m"},
    {"-hfd -hfrd --spec-draft-hf --hf-repo-draft", "REPO", "LLAMA_ARG_SPEC_DRAFT_HF_REPO", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -md"},
    {"-mu --model-url", "URL", "LLAMA_ARG_MODEL_URL", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -m"},
    {"-dr --docker-repo", "REPO", "LLAMA_ARG_DOCKER_REPO", kRefused, "", "nothing is fetched here; download the GGUF file and give it with -m"},
    {"--lora", "FILE", "", kRefused, "", "adapters are not applied here; merge it into the model (llama-export-lora) and give the merged file with -m"},
    {"--lora-scaled", "LIST", "", kRefused, "", "adapters are not applied here; merge it into the model (llama-export-lora) and give the merged file with -m"},
    {"--control-vector", "FILE", "", kRefused, "", "control vectors are not applied here; use llama.cpp for this"},
    {"--control-vector-scaled", "LIST", "", kRefused, "", "control vectors are not applied here; use llama.cpp for this"},
    {"-mm --mmproj", "FILE", "LLAMA_ARG_MMPROJ", kRefused, "", "only text is read here; leave the projector out and describe the image in words"},
    {"-mmu --mmproj-url", "URL", "LLAMA_ARG_MMPROJ_URL", kRefused, "", "only text is read here; leave the projector out and describe the image in words"},
    {"--image --audio --video", "FILE", "", kRefused, "", "only text is read here"},
    {"--rpc", "SERVERS", "LLAMA_ARG_RPC", kRefused, "", "the model is computed on this machine alone"},
    {"--override-kv", "LIST", "", kRefused, "", "the file's metadata is used as it is, since it is part of what the answer depends on; write a changed file instead"},
    {"--rope-scaling", "TYPE", "LLAMA_ARG_ROPE_SCALING_TYPE", kRefused, "", "the file says how positions are scaled; leave it out"},
    {"--rope-scale", "X", "LLAMA_ARG_ROPE_SCALE", kRefused, "", "the file says how positions are scaled; leave it out"},
    {"--rope-freq-base", "X", "LLAMA_ARG_ROPE_FREQ_BASE", kRefused, "", "the file says how positions are scaled; leave it out", "0"},
    {"--rope-freq-scale", "X", "LLAMA_ARG_ROPE_FREQ_SCALE", kRefused, "", "the file says how positions are scaled; leave it out", "0"},
    {"--yarn-orig-ctx", "N", "LLAMA_ARG_YARN_ORIG_CTX", kRefused, "", "the file says how positions are scaled; leave it out", "0"},
    {"--yarn-ext-factor", "X", "LLAMA_ARG_YARN_EXT_FACTOR", kRefused, "", "the file says how positions are scaled; leave it out", "-1"},
    {"--yarn-attn-factor", "X", "LLAMA_ARG_YARN_ATTN_FACTOR", kRefused, "", "the file says how positions are scaled; leave it out", "-1"},
    {"--yarn-beta-slow", "X", "LLAMA_ARG_YARN_BETA_SLOW", kRefused, "", "the file says how positions are scaled; leave it out", "-1"},
    {"--yarn-beta-fast", "X", "LLAMA_ARG_YARN_BETA_FAST", kRefused, "", "the file says how positions are scaled; leave it out", "-1"},
    {"-gan --grp-attn-n", "N", "LLAMA_ARG_GRP_ATTN_N", kRefused, "", "self-extend is not there; use a model with the context you need", "1"},
    {"-gaw --grp-attn-w", "N", "LLAMA_ARG_GRP_ATTN_W", kRefused, "", "self-extend is not there; use a model with the context you need"},
    {"--context-shift", "", "LLAMA_ARG_CONTEXT_SHIFT", kRefused, "", "a full context ends the answer; raise -c or start a new conversation"},
    {"--prompt-cache", "FILE", "", kRefused, "", "state is not kept in files; a chat keeps its own"},
    {"--prompt-cache-all", "", "", kRefused, "", "state is not kept in files; a chat keeps its own"},
    {"--prompt-cache-ro", "", "", kRefused, "", "state is not kept in files; a chat keeps its own"},
    {"-lcs --lookup-cache-static", "FILE", "", kRefused, "", "drafts come from this request alone; use --spec-type ngram or suffix"},
    {"-lcd --lookup-cache-dynamic", "FILE", "", kRefused, "", "drafts come from this request alone; use --spec-type ngram or suffix"},
    {"-bf --binary-file", "FILE", "", kRefused, "", "use -f with --no-escape, or give the text on standard input"},
    {"--in-prefix", "TEXT", "", kRefused, "", "a chat uses the template; give your own with --chat-template-file"},
    {"--in-suffix", "TEXT", "", kRefused, "", "a chat uses the template; give your own with --chat-template-file"},
    {"--in-prefix-bos", "", "", kRefused, "", "a chat uses the template; give your own with --chat-template-file"},
    {"--no-jinja", "", "", kRefused, "", "chat templates are rendered by Jinja; leave it out"},
    {"--chat-template-kwargs", "JSON", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", kRefused, "", "set the variables in a template of your own with --chat-template-file"},
    {"-rea --reasoning", "[on|off|auto]", "LLAMA_ARG_REASONING", kRefused, "", "use a template of your own with --chat-template-file", "auto"},
    {"--reasoning-budget", "N", "LLAMA_ARG_THINK_BUDGET", kRefused, "", "use -n to bound the answer", "-1"},
    {"--grammar", "TEXT", "", kRefused, "", "constrained output is not there yet; ask for the form in the prompt"},
    {"--grammar-file", "FILE", "", kRefused, "", "constrained output is not there yet; ask for the form in the prompt"},
    {"-j --json-schema", "JSON", "", kRefused, "", "constrained output is not there yet; ask for the form in the prompt"},
    {"-jf --json-schema-file", "FILE", "", kRefused, "", "constrained output is not there yet; ask for the form in the prompt"},
    {"--sampler-seq --sampling-seq", "TEXT", "", kRefused, "", "name the stages with --samplers"},
    {"--top-nsigma --top-n-sigma", "X", "", kRefused, "", "the law has penalties, top-k, top-p, min-p and temperature; use those", "-1"},
    {"--xtc-probability", "X", "", kRefused, "", "the law has penalties, top-k, top-p, min-p and temperature; use those", "0"},
    {"--xtc-threshold", "X", "", kNoted, "", "--xtc-probability is off"},
    {"--typical --typical-p", "X", "", kRefused, "", "the law has penalties, top-k, top-p, min-p and temperature; use those", "1"},
    {"--dry-multiplier", "X", "", kRefused, "", "the law has repeat, presence and frequency penalties; use those", "0"},
    {"--dry-base", "X", "", kNoted, "", "--dry-multiplier is off"},
    {"--dry-allowed-length", "N", "", kNoted, "", "--dry-multiplier is off"},
    {"--dry-penalty-last-n", "N", "", kNoted, "", "--dry-multiplier is off"},
    {"--dry-sequence-breaker", "TEXT", "", kNoted, "", "--dry-multiplier is off"},
    {"--adaptive-target", "X", "", kRefused, "", "the law has penalties, top-k, top-p, min-p and temperature; use those", "-1"},
    {"--adaptive-decay", "X", "", kNoted, "", "--adaptive-target is off"},
    {"--dynatemp-range", "X", "", kRefused, "", "the temperature is fixed; use --temp", "0"},
    {"--dynatemp-exp", "X", "", kNoted, "", "--dynatemp-range is off"},
    {"--mirostat", "N", "", kRefused, "", "the law has penalties, top-k, top-p, min-p and temperature; use those", "0"},
    {"--mirostat-lr", "X", "", kNoted, "", "--mirostat is off"},
    {"--mirostat-ent", "X", "", kNoted, "", "--mirostat is off"},
    {"--spec-draft-sampling", "NAME", "LLAMA_ARG_SPEC_DRAFT_SAMPLING", kRefused, "", "a draft is accepted exactly when it is the token that sampling gives; leave it out", "greedy"},
    {"--spec-synth-len", "X", "LLAMA_ARG_SPEC_SYNTH_LEN", kRefused, "", "an acceptance that is made up has no place in an answer; leave it out"},
    {"--spec-synth-rates", "LIST", "LLAMA_ARG_SPEC_SYNTH_RATES", kRefused, "", "an acceptance that is made up has no place in an answer; leave it out"},
    {"--spec-default", "", "", kRefused, "", "use --spec-type ngram or suffix"},
    {"--draft --draft-n --draft-max", "N", "LLAMA_ARG_DRAFT_MAX", kRefused, "", "llama.cpp has removed it; use --spec-draft-n-max"},
    {"--draft-min --draft-n-min", "N", "LLAMA_ARG_DRAFT_MIN", kRefused, "", "llama.cpp has removed it; use --spec-draft-n-min"},
};
// clang-format on

}  // namespace

std::span<const Flag> flag_table() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> flags(std::begin(kFlags), std::end(kFlags));
    const std::span<const Flag> lab = lab_flags();
    flags.insert(flags.end(), lab.begin(), lab.end());
    return flags;
  }();
  return all;
}

std::vector<std::string_view> split_names(std::string_view names) {
  std::vector<std::string_view> out;
  while (!names.empty()) {
    const size_t space = names.find(' ');
    out.push_back(names.substr(0, space));
    names = space == std::string_view::npos ? "" : names.substr(space + 1);
  }
  return out;
}

std::string_view flag_name(const Flag& flag) {
  for (const std::string_view name : split_names(flag.names)) {
    if (name.starts_with("--")) return name;
  }
  return flag.names;
}

std::string flags_markdown() {
  const auto cell = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  };
  const auto names = [&](const Flag& flag) {
    std::string out;
    for (const std::string_view name : split_names(flag.names)) {
      out += fmt::format("{}`{}{}`", out.empty() ? "" : ", ", name,
                         flag.value.empty() ? "" : fmt::format(" {}", flag.value));
    }
    return cell(out);
  };
  std::string out =
      "# Flags\n\n"
      "Made by `lockstep flags` from the one table in `apps/lockstep/flag_table.cc`; a test "
      "compares.\n"
      "Names, short forms and variables are llama.cpp b11434's wherever the same thing exists "
      "there.\n"
      "A flag on the command line goes before its environment variable; of a flag given twice the "
      "last\n"
      "one counts, except those that may be given again. `_` in a long name is read as `-`.\n\n"
      "## Used\n\n| flag | variable | commands | what it does |\n| --- | --- | --- | --- |\n";
  for (const Flag& flag : flag_table()) {
    if (flag.kind != FlagKind::used) continue;
    out += fmt::format("| {} | {} | {} | {} |\n", names(flag),
                       flag.env.empty() ? "" : fmt::format("`{}`", flag.env), flag.commands,
                       cell(flag.text));
  }
  out +=
      "\n## Accepted with a note\n\nThey mean nothing here and cannot change the answer: one line "
      "on "
      "standard error says why.\n\n| flag | variable | why |\n| --- | --- | --- |\n";
  for (const Flag& flag : flag_table()) {
    if (flag.kind != FlagKind::noted) continue;
    out += fmt::format("| {} | {} | {} |\n", names(flag),
                       flag.env.empty() ? "" : fmt::format("`{}`", flag.env), cell(flag.text));
  }
  out +=
      "\n## Refused by name\n\nThey would change the answer, or ask for something that is not "
      "there: "
      "exit code 2. A value in the third column switches the feature off, as it is here, and is "
      "accepted.\n\n| flag | variable | accepted | what to do instead |\n| --- | --- | --- | --- "
      "|\n";
  for (const Flag& flag : flag_table()) {
    if (flag.kind != FlagKind::refused) continue;
    out += fmt::format("| {} | {} | {} | {} |\n", names(flag),
                       flag.env.empty() ? "" : fmt::format("`{}`", flag.env),
                       flag.off.empty() ? "" : fmt::format("`{}`", flag.off), cell(flag.text));
  }
  return out;
}

}  // namespace lockstep::app
