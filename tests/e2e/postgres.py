"""A PostgreSQL server of the tests' own: in a temporary folder, on a Unix socket alone, as a user that is not root."""
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path


def binaries():
    """Where the server's programs are (Debian keeps them out of the PATH), or None."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
    if found:
        return Path(found[-1]).parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


class Server:
    def __init__(self):
        self.bin = binaries()
        # The server refuses to run as root.
        self.user = None
        if os.getuid() == 0:
            names = {user.pw_name for user in pwd.getpwall()}
            self.user = "postgres" if "postgres" in names else "nobody"
        self.folder = Path(tempfile.mkdtemp(prefix="ls-pg-"))
        if self.user:
            shutil.chown(self.folder, self.user)
        self.folder.chmod(0o755)
        self.databases = 0

    def call(self, program, *arguments):
        done = subprocess.run([str(self.bin / program), *map(str, arguments)], user=self.user, cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.folder)})
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def start(self):
        self.call("initdb", "-D", self.folder / "data", "-U", "lab", "-A", "trust", "-E", "UTF8", "--no-sync")
        # -w waits until it answers; nothing listens on the network. The log keeps its output off this pipe.
        self.call("pg_ctl", "-D", self.folder / "data", "-w", "-t", "120", "-l", self.folder / "log",
                  "-o", f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=40", "start")
        return self

    def stop(self):
        try:
            self.call("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def database(self):
        """The URL of a new, empty database."""
        self.databases += 1
        name = f"lab{self.databases}"
        self.call("createdb", "-h", self.folder, "-U", "lab", name)
        return f"postgresql:///{name}?host={self.folder}&user=lab"

    def sql(self, url, text):
        """Runs SQL; the rows as lists of texts."""
        out = self.call("psql", url, "-X", "-q", "-A", "-t", "-F", "\x1f", "-v", "ON_ERROR_STOP=1", "-c", text)
        return [line.split("\x1f") for line in out.splitlines() if line]
