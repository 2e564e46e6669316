# Each journey begins with this: the files of a release, the collections, and shell functions for throwaway nodes.
(cd /release && cp SHA256SUMS $(cut -d ' ' -f 3 SHA256SUMS) ~)
#sh docs/collection.md | Install a release
$controller/bin/ansible-galaxy collection install --offline nodedevices-lab-0.1.0.tar.gz
export ANSIBLE_CONFIG=~/ansible.cfg
cat >"$ANSIBLE_CONFIG" <<'CFG'
#text docs/collection.md | Use the installed collection
CFG
mkdir -m 0700 ~/.ssh lab

# Boots nodes, each NAME=RELEASE. ssh then knows them by their names, like machines that the user has.
boot() {
  for node; do
    echo "lab_nodes: {hosts: {${node%=*}: {lab_node_release: ${node#*=}}}}" >"lab/${node%=*}.yml"
  done
  cat >lab/nodes.yml <<'YAML'
all:
  vars: {lab_node_ssh_config: ~/.ssh/config}
YAML
  $controller/bin/ansible-playbook -i lab nodedevices.lab.lab_up
  for node in "${@%=*}"; do traces "$node" >"before-$node"; done
}

# Boots a cluster's nodes, for kubectl.
cluster() {
  cat >>lab/cluster.yml <<'YAML'
lab_nodes:
  vars: {lab_node_network: bridge, lab_node_kubelet: installed, lab_cluster_kubeconfig: ~/.kube/config}
YAML
  boot "${@/%/=trixie}"
  mkdir ~/.kube
  cat >cluster.yml <<'YAML'
- hosts: lab_nodes
  gather_facts: false
  roles: [nodedevices.lab.lab_cluster]
YAML
  $controller/bin/ansible-playbook -i lab cluster.yml
  export PATH="$KUBERNETES_BIN_DIR:$HELM_BIN_DIR:$PATH"
}

# Loads the release's image on nodes with containerd, and gives them a device.
load_image() {
  for node; do
    on "$node" mknod /dev/fuse c 10 229 || on "$node" test -c /dev/fuse
    podman cp "node-device-plugin-0.1.0-$(dpkg --print-architecture).tar" "$node:/root/image.tar"
    on "$node" ctr --namespace k8s.io images import /root/image.tar
  done
}

# Runs a command on a node.
on() { podman exec --interactive "$@"; }

# Lists what has our names on a node. The lab installs its kubelet stand-in in the same way as the plugin.
traces() {
  on "$1" find /etc /opt /run /usr/local /var/lib '(' -name '*node-device*' -o -path '*/cdi/*' ')' | sort
}

# Checks that nodes have no trace of ours, and destroys them.
destroy() {
  for node; do traces "$node" | diff "before-$node" -; done
  $controller/bin/ansible-playbook -i lab nodedevices.lab.lab_down
}
