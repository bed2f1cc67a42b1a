"""A real sshd on the loopback interface: as another user where the tests run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from voicehub_remote.target import Target

TOOLS = ("sshd", "ssh", "ssh-keygen", "tmux", "rsync")
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


def find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


@dataclass(frozen=True)
class Host:
    """What a test needs to know of the server.

    Attributes:
        folder: everything of the server lies below it.
        home: the home directory that sessions begin in, empty at first.
        user: as whom we log in.
        port: where it listens; a session there finds every tool.
        bare_port: a session there finds no tmux; ``rsync`` is there.
        no_rsync_port: a session there finds no rsync.
        key: the private key that is let in.
        known_hosts: holds the key of this server.
        python: an interpreter that sessions can run, with torch and voicehub.
        full_disk: a folder of the host whose disk has 64 KiB; None where none can be mounted.
    """

    folder: Path
    home: Path
    user: str
    port: int
    bare_port: int
    no_rsync_port: int
    key: Path
    known_hosts: Path
    python: str
    full_disk: str | None

    @property
    def options(self) -> tuple[str, ...]:
        """ssh reads nothing but the files of this server."""
        return (
            f"UserKnownHostsFile={self.known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            "IdentityAgent=none",
        )

    def target(self, **changes: object) -> Target:
        plain = Target("127.0.0.1", self.user, self.port, self.key, self.options)
        return replace(plain, **changes)  # type: ignore[arg-type]

    @property
    def arguments(self) -> list[str]:
        """Words of a command line: the host, and how to get in."""
        options = [word for option in self.options for word in ("--ssh-option", option)]
        return [f"{self.user}@127.0.0.1:{self.port}", "--identity", str(self.key), *options]

    def processes(self) -> list[int]:
        """Processes of sessions, those in tmux too: their home is ours."""
        mine = f"HOME={self.home}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    def end_sessions(self) -> None:
        """End everything that sessions have started."""
        for _ in range(20):
            left = self.processes()
            if not left:
                return
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


@contextlib.contextmanager
def serve() -> Iterator[Host]:
    """Start the server, and end it with all that it started."""
    folder = Path(tempfile.mkdtemp(prefix="vh-sshd-"))
    folder.chmod(0o755)
    try:
        host = _prepare(folder)
        with _running(host) as host:
            try:
                yield host
            finally:
                host.end_sessions()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback interface at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_ipv6() -> bool:
    """Whether the loopback interface has its IPv6 address."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def make_key(path: Path) -> Path:
    """A new private key."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def test_user() -> pwd.struct_passwd:
    """Another user where we may become one and there is one, else the same."""
    name = os.environ.get("VOICEHUB_SSH_TEST_USER", "voicehub-test")
    if os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return pwd.getpwuid(os.geteuid())


def _prepare(folder: Path) -> Host:
    user = test_user()
    home = folder / "home"
    home.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(home, user.pw_uid, user.pw_gid)
    key, host_key = make_key(folder / "key"), make_key(folder / "host_key")
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "authorized_keys").chmod(0o644)
    host = Host(
        folder, home, user.pw_name, free_port(), free_port(), free_port(), key,
        folder / "known_hosts", sys.executable, str(folder / "full"),
    )  # fmt: skip
    public = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
    ports = (host.port, host.bare_port, host.no_rsync_port)
    addresses = ["127.0.0.1", *(["::1"] if has_ipv6() else [])]
    names = [f"[{address}]:{port}" for address in addresses for port in ports]
    host.known_hosts.write_text("".join(f"{name} {public}\n" for name in names))
    _write_login(host)
    (folder / "config").write_text(
        "".join(f"Port {port}\n" for port in ports)
        + "".join(f"ListenAddress {address}\n" for address in addresses)
        + f"HostKey {host_key}\nAuthorizedKeysFile {folder}/authorized_keys\n"
        + f"PidFile {folder}/pid\nForceCommand {folder}/login\n"
        + "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
        + "KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nMaxStartups 50\n"
    )
    return host


def _write_login(host: Host) -> None:
    """What every session runs: a home and a PATH of our own, and nothing from the network."""
    without_tmux = _tools_without(host.folder / "no-tmux", "tmux")
    without_rsync = _tools_without(host.folder / "no-rsync", "rsync")
    login = host.folder / "login"
    login.write_text(
        "#!/bin/sh\n"
        f"HOME={host.home}; PIP_NO_INDEX=1; PIP_DISABLE_PIP_VERSION_CHECK=1; OMP_NUM_THREADS=1\n"
        "export HOME PIP_NO_INDEX PIP_DISABLE_PIP_VERSION_CHECK OMP_NUM_THREADS\n"
        'case "$SSH_CONNECTION" in\n'
        f'*" {host.bare_port}") PATH={without_tmux} ;;\n'
        f'*" {host.no_rsync_port}") PATH={without_rsync} ;;\n'
        "*) PATH=/usr/local/bin:/usr/bin:/bin ;;\n"
        "esac\n"
        "export PATH\n"
        'cd "$HOME" || exit 1\n'
        "[ -e .noisy ] && echo 'Welcome to this host!'\n"
        '[ -n "$SSH_ORIGINAL_COMMAND" ] && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
        "exec /bin/sh -l\n"
    )
    login.chmod(0o755)


def _tools_without(folder: Path, tool: str) -> Path:
    folder.mkdir()
    for room in ("/usr/bin", "/bin", "/usr/local/bin"):
        for program in Path(room).glob("*"):
            if program.name != tool and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


@contextlib.contextmanager
def _running(host: Host) -> Iterator[Host]:
    """sshd in a view of the file system of its own where that may be had, else as it is."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation directory
    server = [str(find("sshd")), "-D", "-e", "-f", str(host.folder / "config")]
    inner = " && ".join([*_mounts(host), f"exec {shlex.join(server)}"])
    unshared = ["unshare", "--mount", "sh", "-c", inner]
    can_mount = os.geteuid() == 0 and _succeeds(
        [*unshared[:2], "mount", "-t", "tmpfs", "t", "/mnt"]
    )
    if not can_mount:
        host = replace(host, full_disk=None)
    log = host.folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(unshared if can_mount else server, stderr=stream)
    try:
        _wait_for(process, host.port, log)
        yield host
    finally:
        host.end_sessions()
        process.terminate()
        process.wait()


def _mounts(host: Host) -> list[str]:
    """A small disk; and interpreters that lie in a closed home directory become visible."""
    folder = host.folder
    lines = [f"mkdir {folder}/full", f"mount -t tmpfs -o size=64k,mode=777 small {folder}/full"]
    hidden = sorted({(wall, path) for path in _needed() if (wall := _wall(path)) is not None})
    for number, (_, path) in enumerate(hidden):
        stash = f"{folder}/stash-{number}"
        lines += [f"mkdir {stash}", f"mount --bind {shlex.quote(path)} {stash}"]
    for wall in sorted({wall for wall, _ in hidden}):
        lines.append(f"mount -t tmpfs -o mode=755 cover {shlex.quote(wall)}")
    for number, (_, path) in enumerate(hidden):
        quoted = shlex.quote(path)
        lines += [f"mkdir -p {quoted}", f"mount --bind {folder}/stash-{number} {quoted}"]
    return lines


def _needed() -> list[str]:
    """Folders without which our interpreter does not run."""
    roots = [sys.base_prefix, sys.prefix, str(Path(__file__).resolve().parents[4])]
    paths = [str(Path(path).resolve()) for path in roots]
    return [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]


def _wall(path: str) -> str | None:
    """The first folder above that others cannot pass."""
    for parent in reversed(Path(path).parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return str(parent)
    return None


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"sshd did not start:\n{log.read_text()}")
