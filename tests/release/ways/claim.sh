# A cluster of the user's, whose pod gets the camera that its claim selects. nodes: claim-control-plane claim-worker
cluster claim-control-plane claim-worker
on claim-worker mknod /dev/video0 c 1 3
on claim-worker mknod /dev/video2 c 1 5

mkdir -p inventory/group_vars
echo 'node_devices: {hosts: {claim-worker: }}' >inventory/hosts.yml
cat >inventory/group_vars/node_devices.yml <<'YAML'
#yaml docs/dra.md | Declare devices | 0
# The kubelet of the lab has its credentials in another file than that of kubeadm. The playbook refuses the node without
# this setting, and names both.
node_devices_settings: {dra: {kubeconfig: /etc/kubernetes/lab/kubelet.conf}}
YAML
$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.site | tee run
grep 'example.com/camera .* proven' run
# The node has this image, and reaches no registry.
sed 's#registry.k8s.io/e2e-test-images/busybox:1.29-4#localhost/node-devices/busybox:lab#' >pod.yml <<'YAML'
#yaml docs/dra.md | Request a device | 0
YAML
kubectl apply -f pod.yml
kubectl wait --for=condition=Ready --timeout=120s pod/viewer
kubectl exec viewer -- ls /dev | grep video >seen
test "$(cat seen)" = video0
kubectl delete -f pod.yml --now

$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.uninstall
test "$(kubectl get deviceclasses,resourceslices --output name)" = ''
destroy claim-control-plane claim-worker
