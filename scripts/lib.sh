# Shared by the scripts: where things are, installing what is missing, finding out how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian packages. The engine's are all that the demo needs.
ENGINE_PACKAGES=(
  cmake ninja-build g++ ca-certificates
  libssl-dev libfmt-dev nlohmann-json3-dev libcli11-dev libjs-chart.js
  python3 python3-venv python3-jinja2
)
# Any Boost from 1.74 on does, and two of them cannot be there side by side.
[ -e /usr/include/boost/beast.hpp ] || ENGINE_PACKAGES+=(libboost-dev)
TEST_PACKAGES=(ccache clang-19 libclang-rt-19-dev libgtest-dev libmpfr-dev pkg-config
               libsqlite3-dev libpq-dev postgresql
               chromium chromium-driver python3-selenium apache2-utils)

jobs=$(nproc)

say() { printf '\n== %s\n' "$*"; }

# Installs the packages that are missing, and asks for no rights when none is.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing packages, and no sudo to install them: ${missing[*]}" >&2; return 4; }
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# A virtual environment at $1 with what the requirement files after it ask for. Made by the system's
# python: another one may come first on the PATH.
make_venv() {
  local venv=$1
  shift
  [ -x "$venv/bin/python" ] || /usr/bin/python3 -m venv "$venv"
  local file
  for file in "$@"; do
    local stamp
    stamp="$venv/$(sha256sum "$file" | cut -c1-16).done"
    [ -e "$stamp" ] && continue
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$file" \
      -c tests/constraints.txt
    touch "$stamp"
  done
}
