# A GPU whose CDI spec NVIDIA's toolkit writes. Without a driver, the toolkit knows GPUs only as on a Tegra: by files that
# list their device nodes. The GPU is named by its index there, and not by a UUID. nodes: gpu-worker
boot gpu-worker=trixie
# The user's toolkit, with the files that NVIDIA's packages for Tegra have.
for program in nvidia-ctk nvidia-cdi-hook; do podman cp "$NVIDIA_BIN_DIR/$program" gpu-worker:/usr/bin/; done
on gpu-worker bash -eu <<'NODE'
echo '# R36 (release), REVISION: 4.3' >/etc/nv_tegra_release
mkdir -p /etc/nvidia-container-runtime/host-files-for-container.d /etc/cdi
for path in nvhost-gpu nvhost-ctrl nvmap; do
  mknod /dev/$path c 1 3
  echo "dev, /dev/$path"
done >/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv
#sh docs/cookbook/gpus.md | | 0
NODE
traces gpu-worker >before-gpu-worker

#sh docs/collection.md | Use the installed collection | 0
echo 'node_devices: {children: {workers: {hosts: {gpu-worker: }}}}' >inventory/hosts.yml
rm -r inventory/group_vars
mkdir -p inventory/group_vars/workers
cat >inventory/group_vars/workers/gpu.yml <<'YAML'
#yaml docs/cookbook/gpus.md | | 0
YAML
$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.site | tee run
grep 'example.com/gpu .* proven' run

$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.uninstall
destroy gpu-worker
