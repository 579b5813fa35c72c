#!/bin/sh
# Runs a program on four ranks of Open MPI, two each in two network namespaces with addresses, host names and process numbers of their own: as on two
# machines. Exit code 77: that is not permitted here.
#   tests/namespaces.sh PROGRAM [ARGUMENT...]
a=titan-a-$$ b=titan-b-$$ agent=$(mktemp)
clean() {
	ip netns del $a 2>/dev/null
	ip netns del $b 2>/dev/null
	rm -f "$agent"
}
trap clean EXIT
{ ip netns add $a && ip netns add $b && ip link add va$$ netns $a type veth peer name vb$$ netns $b && ip netns exec $a unshare --uts --pid --fork true; } || exit 77
ip -n $a addr add 10.99.7.1/24 dev va$$ && ip -n $a link set va$$ up && ip -n $a link set lo up || exit 77
ip -n $b addr add 10.99.7.2/24 dev vb$$ && ip -n $b link set vb$$ up && ip -n $b link set lo up || exit 77
cat >"$agent" <<EOF
#!/bin/sh
shift
exec ip netns exec $b unshare --uts --pid --fork --kill-child --mount-proc sh -c "hostname node-b; \$*"
EOF
chmod +x "$agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec $a unshare --uts --pid --fork --kill-child --mount-proc sh -c 'hostname node-a; exec "$@"' sh mpiexec.openmpi --mca plm_rsh_agent "$agent" \
	--mca oob_tcp_if_include 10.99.7.0/24 --mca btl_tcp_if_include 10.99.7.0/24 -H 10.99.7.1:2,10.99.7.2:2 -n 4 "$@"
