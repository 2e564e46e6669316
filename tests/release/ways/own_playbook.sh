# The repository of a user who joins nodes by kubeadm. nodes: own-worker1 own-worker2
boot own-worker1=trixie own-worker2=forky

mkdir -p cluster/roles/kubeadm/tasks cluster/inventory/group_vars
cd cluster
cat >inventory/hosts.yml <<'YAML'
workers: {hosts: {own-worker1: {}, own-worker2: {}}}
YAML
cat >inventory/group_vars/workers.yml <<'YAML'
node_devices_resources:
  - name: devices.example.com/null
    devices: [{id: "0", nodes: [{path: /dev/null0, host_path: /dev/null}]}]
YAML
# The role takes the place of kubeadm's: it configures the kubelet and restarts it, as `kubeadm join` does.
cat >roles/kubeadm/tasks/main.yml <<'YAML'
- name: Configure the kubelet
  ansible.builtin.copy: {content: "KUBELET_EXTRA_ARGS=\n", dest: /etc/default/kubelet, mode: "0644"}
  register: kubeadm_written

- name: Restart the kubelet
  ansible.builtin.systemd_service: {name: kubelet, state: restarted}
  when: kubeadm_written is changed
YAML
cat >node.yml <<'YAML'
#yaml docs/collection.md | In your own playbook | 1
YAML
cat >cluster.yml <<'YAML'
#yaml docs/collection.md | In your own playbook | 0
YAML
$controller/bin/ansible-playbook -i inventory node.yml --limit own-worker1
$controller/bin/ansible-playbook -i inventory cluster.yml | tee run
grep 'own-worker1 *: .*changed=0 ' run
test "$(grep -c 'devices.example.com/null .* proven' run)" = 2

#sh docs/collection.md | In your own playbook | 0
cd
destroy own-worker1 own-worker2
