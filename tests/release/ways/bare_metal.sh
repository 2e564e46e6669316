# Two machines of the user's, which the collection provisions, verifies and leaves. nodes: worker1 worker2
boot worker1=trixie worker2=forky

#sh docs/collection.md | Use the installed collection | 0
# Only the addresses are replaced, because ssh knows these machines by their names.
sed -i '/ansible_host:/d' inventory/hosts.yml
#sh docs/bare-metal.md | | 1:

# A second run changes neither of the two.
$controller/bin/ansible-playbook -i inventory nodedevices.kubernetes.site | tee again
[ "$(grep -c ' changed=0 ' again)" = 2 ]

#sh docs/remove.md | | 0
destroy worker1 worker2
