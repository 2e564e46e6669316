"""Counts the free pod slots of the node.

To the kubelet, a static pod is critical. If the node has no free slot for a static pod, the kubelet ends another pod.
"""

from __future__ import annotations

from ..cluster.api import Api, ApiError, Place
from ..cluster.pods import Slots, of_node
from ..support.bounded_calls import in_thread

#: Free slots that a static pod needs: its own slot, and two for pods that arrive at the same time.
NEEDED = 3
#: The prefix of a kubelet's user name in its cluster.
_NODE_USER = "system:node:"


class SlotCounter:
    """Asks the cluster with the kubelet's credentials, or else counts the pods that the kubelet lists.

    kubeconfig: path of the kubelet's kubeconfig; None for no file. max_pods: from the kubelet's configuration; None if
    unknown.
    """

    def __init__(self, kubeconfig: str | None, max_pods: int | None) -> None:
        self._kubeconfig = kubeconfig
        self._max_pods = max_pods

    async def count(self, pods: int) -> Slots | str:
        """The current slots, or the reason why they are unknown. pods: the number of pods that the kubelet lists."""
        if self._kubeconfig is not None:
            try:
                slots = await in_thread(_by_cluster, self._kubeconfig)
                if slots is not None:
                    return slots
            except ApiError:
                # Do not ask this cluster again, because each failing attempt may take 15 s.
                self._kubeconfig = None
        if self._max_pods is None:
            return "the node's pod slots are unknown: neither the API server nor maxPods of the kubelet gives them"
        return Slots(self._max_pods, max(0, self._max_pods - pods))


def _by_cluster(path: str) -> Slots | None:
    """The slots as the scheduler counts them. Raises ApiError."""
    # Read the kubeconfig each time, because a kubelet's certificate expires.
    api = Api.of(path)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.create(Place("selfsubjectreviews", group="authentication.k8s.io/v1"), review)
    user = str(((answer.get("status") or {}).get("userInfo") or {}).get("username", ""))
    if not user.startswith(_NODE_USER):
        raise ApiError(f"{path} is for {user}, which is not a node")
    return of_node(api, api.node(user[len(_NODE_USER) :]))
