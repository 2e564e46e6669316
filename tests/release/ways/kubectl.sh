# A cluster of the user's without Ansible, with the image of the release. nodes: kubectl-control-plane kubectl-worker
cluster kubectl-control-plane kubectl-worker
load_image kubectl-control-plane kubectl-worker

#sh docs/helm.md | Install with kubectl | 0
# The nodes have this image, and reach no registry.
sed 's#image: busybox#image: localhost/node-devices/busybox:lab#' >pod.yaml <<'YAML'
#yaml docs/helm.md | Give a pod its device | 0
YAML
#sh docs/helm.md | Give a pod its device | 0
kubectl logs has-fuse | grep ' /dev/fuse$'
kubectl delete -f pod.yaml
kubectl delete -f node-device-plugin-0.1.0.yaml
test "$(kubectl get namespaces --output name | grep node-devices)" = ''
$controller/bin/ansible-playbook -i lab nodedevices.lab.lab_down
