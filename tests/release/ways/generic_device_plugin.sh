# A node where another plugin serves a resource of generic-device-plugin, whose configuration is the README's of April
# 2026 (commit 179b1fe): `--device` with the name fuse, count 10 and the path /dev/fuse. nodes: squat-worker
boot squat-worker=trixie

# The other plugin is the lab's. It needs a Python with grpc, which the node gets apart from ours.
cat >other.yml <<'YAML'
- hosts: lab_nodes
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: nodedevices.kubernetes.node_tools}
      vars: {node_tools_root: /opt/other-plugin, node_tools_command: ""}
    - ansible.builtin.include_role: {name: nodedevices.lab.lab_node, tasks_from: stand_in_wheel}
YAML
$controller/bin/ansible-playbook -i lab other.yml
on squat-worker sh -euc 'cat >/run/other_plugin.py
  mkdir -p /srv/data /dev/snd
  for path in fuse video0 ttyUSB0 modem0 gps0 snd/timer snd/controlC0 snd/pcmC0D0c; do
    test -e /dev/$path || mknod /dev/$path c 1 3
  done
  systemd-run --unit=other-plugin --collect --setenv=PYTHONPATH=/usr/local/lib/kubelet_stand_in.whl \
    /opt/other-plugin/current/bin/python /run/other_plugin.py squat.ai/fuse fuse-0 fuse-1 fuse-2
  until test -S /var/lib/kubelet/device-plugins/foreign.sock; do sleep 0.1; done' <<'PYTHON'
#file molecule/daemonset/files/foreign_plugin.py
PYTHON
traces squat-worker >before-squat-worker

mkdir -p inventory/group_vars
echo 'node_devices: {hosts: {squat-worker: }}' >inventory/hosts.yml
cat >inventory/group_vars/node_devices.yml <<'YAML'
#yaml docs/generic-device-plugin.md | | 0
YAML
# What the page says before its command: the playbook refuses the node, and names the resource.
# Not `!`, after which `set -e` does not count.
if $controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.site >refused; then exit 1; fi
grep 'another device plugin already serves squat.ai/fuse' refused
traces squat-worker | diff before-squat-worker -
#sh docs/generic-device-plugin.md | Switch a node | 0
# The node has no API server: the other plugin is a service, and not a DaemonSet's pod.
on squat-worker systemctl stop other-plugin
{
#sh docs/generic-device-plugin.md | Switch a node | 2
} | tee verified
for resource in serial video fuse audio capture modem data; do grep "squat.ai/$resource .* proven" verified; done

$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.uninstall
destroy squat-worker
