"""Machines of RunPod, or of whoever speaks a REST API of that shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from voicehub.cli.output import UsageError
from voicehub_remote.providers.contract import (
    Deed,
    Machine,
    MachineRequest,
    MachineState,
    NoCapacityError,
    ProviderError,
    Settings,
)
from voicehub_remote.providers.http import Api, NoAnswerError

BASE = "https://rest.runpod.io/v1"
TOKEN = "RUNPOD_API_KEY"
SETTINGS = {
    "url": f"base of the API  [{BASE}]",
    "token_env": f"environment variable that holds the API key  [{TOKEN}]",
    "cloud": "SECURE or COMMUNITY  [SECURE]",
    "interruptible": "true for spot machines  [false]",
    "volume": "GB that survive a stop, at /workspace  [20]",
    "timeout": "seconds for one request  [30]",
}
# Short names, each with all kinds that it stands for; others are taken as the provider names them.
GPUS = {
    "B200": ["NVIDIA B200"],
    "H200": ["NVIDIA H200"],
    "H100": ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"],
    "A100": ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"],
    "L40S": ["NVIDIA L40S"],
    "L4": ["NVIDIA L4"],
    "A40": ["NVIDIA A40"],
    "A6000": ["NVIDIA RTX A6000"],
    "RTX4090": ["NVIDIA GeForce RTX 4090"],
    "RTX5090": ["NVIDIA GeForce RTX 5090"],
}
_NO_CAPACITY = (
    "no longer any instances",
    "no instances",
    "not available",
    "no available",
    "capacity",
)
_STATES = {
    "RUNNING": MachineState.RUNNING,
    "EXITED": MachineState.STOPPED,
    "TERMINATED": MachineState.GONE,
}


class RunPodProvider:
    """Starts pods that are reached by ssh at a public address."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        Settings(settings, SETTINGS).check("runpod")
        self._settings = dict(settings)
        for key in ("volume", "timeout"):
            if not self._settings.get(key, "1").isdigit():
                raise UsageError(f"--set {key}={self._settings[key]}: expected a whole number.")
        if self._settings.get("interruptible", "false") not in ("true", "false"):
            raise UsageError("--set interruptible: expected true or false.")
        token = self._settings.get("token_env", TOKEN)
        if not token.isidentifier():
            raise UsageError("--set token_env: expected the NAME of an environment variable.")
        timeout = float(self._settings.get("timeout", "30"))
        self._api = Api(self._settings.get("url", BASE), token, timeout)

    def up(self, request: MachineRequest) -> Machine:
        """Create a pod. Where the answer is lost, the pod is looked for, and taken over."""
        body = self._body(request)
        if any(pod.get("name") == request.name for pod in self._pods()):
            raise ProviderError(
                f"The provider has a pod {request.name} already. Take another name, or end that "
                "one first."
            )
        try:
            pod = self._api.request("POST", "/pods", body, again=False)
        except NoAnswerError as error:
            pod = self._after_silence(request, error)
        except ProviderError as error:
            if any(words in str(error).lower() for words in _NO_CAPACITY):
                raise NoCapacityError(
                    f"No {request.gpu or 'machine'} is free now ({error}). Try later, "
                    "another --gpu, or --set cloud=COMMUNITY."
                ) from None
            raise
        if not isinstance(pod, dict) or not pod.get("id"):
            raise ProviderError(
                f"The answer to the request for {request.name} names no pod. Look in the "
                "provider's console whether it was made."
            )
        return self._as_machine(Machine(request.name, str(pod["id"])), pod)

    def look(self, machine: Machine) -> Machine:
        """Ask for the pod."""
        pod = self._api.request("GET", f"/pods/{machine.id}")
        if pod is None:
            return replace(machine, state=MachineState.GONE, target=None)
        return self._as_machine(machine, pod)

    def stop(self, machine: Machine) -> None:
        """Stop the pod; its volume stays, and costs."""
        self._api.request("POST", f"/pods/{machine.id}/stop")

    def down(self, machine: Machine) -> None:
        """Delete the pod with its volume."""
        self._api.request("DELETE", f"/pods/{machine.id}")

    def plan(self, deed: Deed, subject: MachineRequest | Machine) -> list[str]:
        """The requests, as curl makes them."""
        if isinstance(subject, MachineRequest):
            creation = self._api.curl("POST", "/pods", self._body(subject))
            return [self._api.curl("GET", "/pods"), creation]
        method, end = {"stop": ("POST", "/stop"), "down": ("DELETE", "")}.get(deed, ("GET", ""))
        return [self._api.curl(method, f"/pods/{subject.id}{end}")]

    def _body(self, request: MachineRequest) -> dict[str, Any]:
        if request.gpu is None:
            raise UsageError(f"--gpu: name the kind, one of {', '.join(GPUS)}, or as RunPod does.")
        if request.image is None:
            raise UsageError("--image: name a container image with PyTorch and sshd.")
        body: dict[str, Any] = {
            "name": request.name,
            "imageName": request.image,
            "gpuTypeIds": GPUS.get(request.gpu.upper(), [request.gpu]),
            "gpuCount": request.gpus,
            "cloudType": self._settings.get("cloud", "SECURE"),
            "interruptible": self._settings.get("interruptible") == "true",
            "volumeInGb": int(self._settings.get("volume", "20")),
            "volumeMountPath": "/workspace",
            "supportPublicIp": True,
            "ports": ["22/tcp"],
        }
        if request.disk is not None:
            body["containerDiskInGb"] = request.disk
        if request.public_key is not None:
            body["env"] = {"PUBLIC_KEY": request.public_key}
        return body

    def _pods(self) -> list[dict[str, Any]]:
        pods = self._api.request("GET", "/pods")
        return [pod for pod in pods or [] if isinstance(pod, dict)]

    def _after_silence(self, request: MachineRequest, error: NoAnswerError) -> dict[str, Any]:
        try:
            found = [pod for pod in self._pods() if pod.get("name") == request.name]
        except ProviderError:
            found = []
        if found:
            return found[0]
        raise ProviderError(
            f"{error} No pod {request.name} was found afterwards; look in the provider's console "
            "whether one was started all the same."
        )

    def _as_machine(self, machine: Machine, pod: Mapping[str, Any]) -> Machine:
        state = _STATES.get(str(pod.get("desiredStatus")), MachineState.STARTING)
        address, ports = pod.get("publicIp"), pod.get("portMappings") or {}
        port = ports.get("22") if isinstance(ports, dict) else None
        target = f"root@{address}:{port}" if address and port else None
        if state is MachineState.RUNNING and target is None:
            state = MachineState.STARTING  # the container is still fetched or has no address yet
        cost = pod.get("costPerHr")
        told = f"{cost} $ an hour" if cost is not None else machine.cost
        return replace(machine, state=state, target=target, cost=told)
