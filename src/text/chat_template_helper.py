# The process in which chat templates run: embedded in the binary, started as "python3 -I -c" by
# chat_template.cc, one JSON object per line each way, over stdin and stdout.
#   {"template", "bos_token", "eos_token"}                          -> {"ok"} or {"error", "kind"}
#   {"messages", "add_generation_prompt", "extra", "now", "seconds"} -> {"text"} or {"error", "kind"}
# The environment is that of Hugging Face's transformers (apply_chat_template), which templates are
# written for.
import ctypes
import json
import os
import resource
import signal
import sys

PARENT, MEMORY = int(sys.argv[1]), int(sys.argv[2])


def reply(**fields):
    # Lone surrogates, which JSON can carry and UTF-8 cannot, become U+FFFD.
    line = json.dumps(fields, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


# Die with the parent: by signal when busy, by the end of stdin when idle.
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)   # PR_SET_PDEATHSIG
if os.getppid() != PARENT:
    sys.exit(0)
try:
    import datetime

    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError as error:
    reply(error=str(error), kind="missing")
    sys.exit(0)
for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NPROC, 0)):
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


class Generation(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %}: marks what a model wrote, for training; prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


now = None   # of the request; the clock's when it has none


def strftime_now(form):
    moment = datetime.datetime.now() if now is None else datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    return moment.strftime(form)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = strftime_now
template = None
variables = {}


def answer(request):
    global now, template, variables
    if "template" in request:
        template = environment.from_string(request["template"])
        variables = {"bos_token": request["bos_token"], "eos_token": request["eos_token"]}
        return {"ok": True}
    now = request["now"]
    return {"text": template.render({
        "tools": None, "documents": None, **variables, **request["extra"], "messages": request["messages"],
        "add_generation_prompt": request["add_generation_prompt"]})}


def main():
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # The default action of SIGALRM ends the process even inside a loop written in C.
        signal.setitimer(signal.ITIMER_REAL, request.get("seconds", 60))
        try:
            fields = answer(request)
        except jinja2.exceptions.TemplateSyntaxError as error:
            fields = {"error": f"line {error.lineno}: {error.message}", "kind": "broken"}
        except Raised as error:
            fields = {"error": str(error), "kind": "raised"}
        except MemoryError:
            fields = {"error": "out of memory", "kind": "memory"}
        except Exception as error:   # whatever a template can make Python raise
            fields = {"error": f"{type(error).__name__}: {error}", "kind": "broken"}
        try:
            reply(**fields)
        except MemoryError:
            reply(error="out of memory", kind="memory")
        fields = None
        signal.setitimer(signal.ITIMER_REAL, 0)


main()
