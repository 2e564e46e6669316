# A cluster of the user's without Ansible, with the release's chart and image. nodes: helm-control-plane helm-worker
cluster helm-control-plane helm-worker
load_image helm-control-plane helm-worker

#sh docs/helm.md | Install with Helm | 0
# The nodes have this image, and reach no registry.
sed 's#image: busybox#image: localhost/node-devices/busybox:lab#' >pod.yaml <<'YAML'
#yaml docs/helm.md | Give a pod its device | 0
YAML
#sh docs/helm.md | Give a pod its device | 0
kubectl logs has-fuse | grep ' /dev/fuse$'
kubectl delete -f pod.yaml
helm uninstall node-device-plugin --namespace node-devices
kubectl delete namespace node-devices
left=$(kubectl get clusterroles,clusterrolebindings,daemonsets,configmaps --all-namespaces --output name)
test "$(grep node-device <<<"$left")" = ''
$controller/bin/ansible-playbook -i lab nodedevices.lab.lab_down
