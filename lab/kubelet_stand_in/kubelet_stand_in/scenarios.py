"""The scenarios for transcripts. Each scenario runs plugins and pods in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Callable

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .observation import DOMAIN, Seen
from .recorder import RecordingPlugin, healthy, register
from .story import Story

Scenario = Callable[[Story], Awaitable[None]]

#: A CDI kind. If the runtime resolves CDI names, a spec of this kind must exist (see transcripts).
CDI_KIND = "transcripts.example.com/device"
CDI_DEVICES = ("a0", "a1")


def _has(resource: str, count: int) -> Callable[[Seen], bool]:
    """Whether the resource has ``count`` allocatable devices. An unlisted resource has 0."""
    return lambda seen: len((seen.allocatable or {}).get(resource, ())) == count


def _pod_is(pod: str, phase: str, restarts: int = 0) -> Callable[[Seen], bool]:
    """Whether the pod is in this phase and, if it runs, has restarted at least ``restarts`` times."""

    def holds(seen: Seen) -> bool:
        state = seen.pods.get(pod, {})
        return state.get("phase") == phase and (phase != "Running" or state.get("restarts", -1) >= restarts)

    return holds


def _gone(pod: str) -> Callable[[Seen], bool]:
    return lambda seen: pod not in seen.pods


def _ended(plugin: str) -> Callable[[Seen], bool]:
    """Whether a stream of the plugin has ended."""
    return lambda seen: any("ended_by" in call for call in seen.calls.get(plugin, ()))


def _full_answer(ids: list[str]) -> api.ContainerAllocateResponse:
    """An answer with every kind of setting except CDI names."""
    return api.ContainerAllocateResponse(
        envs={"DEVICES": ",".join(ids)},
        mounts=[api.Mount(container_path="/given", host_path="/etc/hostname", read_only=True)],
        devices=[api.DeviceSpec(container_path="/dev/given", host_path="/dev/null", permissions="rw")],
        annotations={"transcripts.example.com/given": "yes"},
    )


async def registration(story: Story) -> None:
    await story.step("the kubelet has started on a new node")
    a = await story.plugin("a", "a", healthy(["a1", "a0"]))
    await story.step("a plugin registers", a.register(), _has("a", 2))
    await story.step("it sends one device more", a.set_devices(healthy(["a0", "a1", "a2"])), _has("a", 3))
    b = await story.plugin("b", "b", healthy(["b0"]), folder="")
    await story.step("a second resource, on a socket without a folder", b.register(), _has("b", 1))
    directory = story.kubelet.directory
    await story.step("an unknown API version", register(directory, DOMAIN + "c", "c.sock", version="v1alpha"))
    for name in ("plain", "requests.example.com/c", "example.kubernetes.io/c", "example.com/-c", "Example.com/c"):
        await story.step("the name %s" % name, register(directory, name, "c.sock"))


async def failed_dial_back(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]))
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step(
        "the same resource is registered with a socket where nobody listens",
        register(story.kubelet.directory, a.resource, "nobody.sock"),
    )
    await story.step("the first plugin's stream still counts", a.set_devices(healthy(["a0", "a1"])), _has("a", 2))
    await story.step("it ends, and the kubelet takes no notice", a.stop())


async def lost_stream(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]))
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("its stream ends, it goes on serving", a.end_streams(), _has("a", 0))
    await story.step("it registers again on the same socket", a.register(), _has("a", 1))
    await story.step("its process goes", a.stop(), _has("a", 0))


async def duplicate_old_stream_ends_first(story: Story) -> None:
    old = await story.plugin("old", "a", healthy(["a0"]))
    await story.step("a plugin registers", old.register(), _has("a", 1))
    await story.step("its stream ends", old.end_streams(), _has("a", 0))
    new = await story.plugin("new", "a", healthy(["a0", "a1"]))
    await story.step("a second one registers the same resource", new.register(), _has("a", 2))
    await story.step("the first one's process goes", old.stop())


async def duplicate_old_stream_ends_last(story: Story) -> None:
    old = await story.plugin("old", "a", healthy(["a0"]))
    await story.step("a plugin registers", old.register(), _has("a", 1))
    new = await story.plugin("new", "a", healthy(["a0", "a1"]))
    await story.step("a second one registers the same resource", new.register(), _has("a", 2))
    await story.step("the old one still sends, and is believed", old.set_devices(healthy(["a9"])), _has("a", 1))
    await story.step("the old stream ends", old.stop(), _ended("old"))


async def registered_again(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]))
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("it registers its socket again, the stream still open", a.register())
    await story.step("its process goes", a.stop(), _ended("a"))
    again = await story.plugin("again", "a", healthy(["a0"]))
    await story.step("it comes back on another socket", again.register(), _has("a", 1))
    await story.step("and goes", again.stop(), _ended("again"))


async def handover(story: Story) -> None:
    old = await story.plugin("old", "a", healthy(["a0"]))
    await story.step("a plugin registers", old.register(), _has("a", 1))
    new = await story.plugin("new", "a", healthy(["a0"]))
    await story.step("the next one registers", new.register())
    await story.step("a pod gets a device from the next one", story.place("pod", {"a": 1}), _pod_is("pod", "Running"))
    await story.step("the first one goes", old.stop(), _ended("old"))


async def handover_fails(story: Story) -> None:
    old = await story.plugin("old", "a", healthy(["a0", "a1"]))
    await story.step("a plugin registers", old.register(), _has("a", 2))
    new = await story.plugin("new", "a", healthy(["a0", "a1"]))
    await story.step("the next one registers", new.register())
    await story.step("the next one goes", new.stop(), _ended("new"))


async def kubelet_restart(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0", "a1"]))
    b = await story.plugin("b", "b", healthy(["b0"]), folder="")
    await story.step("a plugin on a socket in a folder", a.register(), _has("a", 2))
    await story.step("a plugin on a socket at the top", b.register(), _has("b", 1))
    await story.step("the kubelet stops", story.kubelet.stop())
    await story.step("it starts", story.kubelet.start())
    await story.step("the first plugin registers again", a.register(), _has("a", 2))
    await story.step("the second one does, its socket was swept", b.register())


async def allocation(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a1", "a0"]), _full_answer)
    await story.step("a plugin registers", a.register(), _has("a", 2))
    await story.step("a static pod asks for both devices", story.place("both", {"a": 2}), _pod_is("both", "Running"))
    await story.step("another one finds none left", story.place("late", {"a": 1}), _pod_is("late", "Failed"))
    await story.step("the first pod goes", story.kubelet.take_away("both"), _gone("both"))
    await story.step("the rejected one stays rejected")
    await story.step("a third one gets a device", story.place("third", {"a": 2}), _pod_is("third", "Running"))


async def more_than_there_are(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0", "a1"]))
    await story.step("a plugin registers", a.register(), _has("a", 2))
    await story.step("a pod asks for three devices", story.place("greedy", {"a": 3}), _pod_is("greedy", "Failed"))
    await story.step("now there are three", a.set_devices(healthy(["a0", "a1", "a2"])), _has("a", 3))


async def ids_by_chance(story: Story) -> None:
    story.seen.by_chance = {"a"}
    a = await story.plugin("a", "a", healthy(["a%d" % number for number in range(8)]))
    await story.step("a plugin registers", a.register(), _has("a", 8))
    await story.step("a pod asks for three of eight", story.place("some", {"a": 3}), _pod_is("some", "Running"))


async def cdi_names(story: Story) -> None:
    def answer(ids: list[str]) -> api.ContainerAllocateResponse:
        return api.ContainerAllocateResponse(
            cdi_devices=[api.CDIDevice(name="%s=%s" % (CDI_KIND, device)) for device in ids]
        )

    a = await story.plugin("a", "a", healthy(CDI_DEVICES), answer)
    await story.step("a plugin registers", a.register(), _has("a", 2))
    await story.step("a pod asks for both", story.place("both", {"a": 2}), _pod_is("both", "Running"))


async def container_restart(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]), _full_answer)
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("a pod gets the device", story.place("pod", {"a": 1}), _pod_is("pod", "Running"))
    container = await story.container_id("pod")
    await story.step(
        "its container ends: the answer is replayed, the plugin is not asked",
        story.kubelet.end_container(container),
        _pod_is("pod", "Running", restarts=1),
    )


async def restart_without_the_plugin(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]), _full_answer)
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("a pod gets the device", story.place("pod", {"a": 1}), _pod_is("pod", "Running"))
    await story.step("the kubelet stops", story.kubelet.stop())
    await story.step("the plugin goes", a.stop())
    await story.step("the kubelet starts: the pod runs on", story.kubelet.start(), _pod_is("pod", "Running"))
    container = await story.container_id("pod")
    await story.step(
        "its container ends: the checkpointed answer is replayed",
        story.kubelet.end_container(container),
        _pod_is("pod", "Running", restarts=1),
    )
    await story.step("a new pod is rejected for good", story.place("new", {"a": 1}), _pod_is("new", "Failed"))


async def never_registered(story: Story) -> None:
    await story.step(
        "a pod asks for what no plugin has: it runs without",
        story.place("early", {"a": 1}),
        _pod_is("early", "Running"),
    )
    a = await story.plugin("a", "a", healthy(["a0"]), _full_answer)
    await story.step("the plugin comes", a.register(), _has("a", 1))
    await story.step("the kubelet stops", story.kubelet.stop())
    await story.step("it starts: the pod is rejected", story.kubelet.start(), _pod_is("early", "Failed"))
    await story.step("the plugin comes back, which helps nobody", a.register(), _has("a", 1))


async def unhealthy_devices(story: Story) -> None:
    a = await story.plugin("a", "a", {"a0": "Healthy", "a1": "Unhealthy"})
    await story.step("one of two devices is healthy", a.register(), _has("a", 1))
    await story.step("a pod gets the healthy one", story.place("pod", {"a": 1}), _pod_is("pod", "Running"))
    await story.step(
        "that one falls ill", a.set_devices({"a0": "Unhealthy", "a1": "Unhealthy"}), lambda seen: not seen.allocatable
    )
    await story.step("a new pod finds none", story.place("late", {"a": 1}), _pod_is("late", "Failed"))
    await story.step("the held device is dropped from the list", a.set_devices({"a1": "Healthy"}), _has("a", 1))


async def empty_resource(story: Story) -> None:
    a = await story.plugin("a", "a", {})
    await story.step(
        "a plugin without devices registers",
        a.register(),
        lambda seen: bool(seen.checkpoint and "a" in seen.checkpoint["registered"]),
    )
    await story.step("a pod asks for one", story.place("pod", {"a": 1}), _pod_is("pod", "Failed"))


async def allocate_fails(story: Story) -> None:
    def refuse(ids: list[str]) -> api.ContainerAllocateResponse:
        raise RuntimeError("no luck today")

    a = await story.plugin("a", "a", healthy(["a0"]), refuse)
    b = await story.plugin("b", "b", healthy(["b0"]))
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("another one", b.register(), _has("b", 1))
    await story.step("Allocate fails", story.place("pod", {"a": 1}), _pod_is("pod", "Failed"))
    await story.step("other resources are not concerned", story.place("other", {"b": 1}), _pod_is("other", "Running"))


async def preferred_allocation(story: Story) -> None:
    wishes: dict[str, list[str]] = {"ids": ["a2", "a3"]}

    def prefer(available: list[str], size: int) -> list[str]:
        if not wishes["ids"]:
            raise RuntimeError("no preference")
        return wishes["ids"]

    a = await story.plugin("a", "a", healthy(["a0", "a1", "a2", "a3"]), prefer=prefer)
    await story.step("a plugin with preferences registers", a.register(), _has("a", 4))
    await story.step("a pod asks for two", story.place("two", {"a": 2}), _pod_is("two", "Running"))
    wishes["ids"] = ["a2", "a9", "a1"]
    await story.step("what is not there is passed over", story.place("one", {"a": 1}), _pod_is("one", "Running"))
    wishes["ids"] = []
    await story.step("an error rejects the pod", story.place("none", {"a": 1}), _pod_is("none", "Failed"))


async def pre_start(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]), pre_start=True)
    await story.step("a plugin that wants PreStartContainer", a.register(), _has("a", 1))
    await story.step("a pod gets the device", story.place("pod", {"a": 1}), _pod_is("pod", "Running"))
    container = await story.container_id("pod")
    await story.step(
        "its container ends", story.kubelet.end_container(container), _pod_is("pod", "Running", restarts=1)
    )


async def pod_that_ends(story: Story) -> None:
    a = await story.plugin("a", "a", healthy(["a0"]))
    await story.step("a plugin registers", a.register(), _has("a", 1))
    await story.step("a pod that runs once", story.place("once", {"a": 1}, "Never"), _pod_is("once", "Running"))
    container = await story.container_id("once")
    await story.step("it ends", story.kubelet.end_container(container), _pod_is("once", "Succeeded"))
    await asyncio.sleep(story.kubelet.quiet)
    await story.step("its device is free", story.place("next", {"a": 1}), _pod_is("next", "Running"))


def _refused(plugin: RecordingPlugin) -> Callable[[Seen], bool]:
    """Whether the kubelet has notified the plugin of a failed registration."""
    return lambda seen: any(call.get("registered") is False for call in plugin.calls)


async def plugins_registry(story: Story) -> None:
    a = await story.found_plugin("a", "a")
    await story.step("a plugin's socket appears", a.start(), _has("a", 1))
    await story.step("it sends one device more", a.set_devices(healthy(["a0", "a1"])), _has("a", 2))
    await story.step("its socket goes", a.stop(), _has("a", 0))
    await story.step("it comes again", a.start(), _has("a", 2))
    await story.step("its stream ends, the socket stays: it is lost for good", a.end_streams(), _has("a", 0))
    await story.step("its socket goes again", a.stop())
    await story.step("and comes once more", a.start(), _has("a", 2))


async def plugins_registry_refusals(story: Story) -> None:
    old = await story.found_plugin("old", "old", versions=["v1alpha"])
    await story.step("a plugin that speaks an unknown version", old.start(), _refused(old))
    await story.step("it goes", old.stop())
    name = await story.found_plugin("name", "-c")
    await story.step("a plugin whose resource is none", name.start(), _refused(name))
    await story.step("it goes", name.stop())
    kind = await story.found_plugin("kind", "kind", kind="OtherPlugin")
    await story.step("a plugin of a kind that nobody handles", kind.start(), _refused(kind))


async def plugins_registry_restart(story: Story) -> None:
    a = await story.found_plugin("a", "a")
    await story.step("a plugin's socket appears", a.start(), _has("a", 1))
    await story.step("the kubelet stops", story.kubelet.stop())
    await story.step("it starts, and finds the socket as it is", story.kubelet.start(), _has("a", 1))


#: Maps each transcript's name to its scenario.
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        registration,
        failed_dial_back,
        lost_stream,
        duplicate_old_stream_ends_first,
        duplicate_old_stream_ends_last,
        registered_again,
        handover,
        handover_fails,
        kubelet_restart,
        allocation,
        more_than_there_are,
        ids_by_chance,
        cdi_names,
        container_restart,
        restart_without_the_plugin,
        never_registered,
        unhealthy_devices,
        empty_resource,
        allocate_fails,
        preferred_allocation,
        pre_start,
        pod_that_ends,
        plugins_registry,
        plugins_registry_refusals,
        plugins_registry_restart,
    )
}
