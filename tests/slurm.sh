#!/bin/sh
# Brings up a Slurm of one node in a folder of its own, runs a command there, and ends it. Exit code 77: that cannot be done here.
#   tests/slurm.sh srun --mpi=pmix -n 4 --overcommit PROGRAM [ARGUMENT...]
for d in munged slurmctld slurmd; do
	command -v $d >/dev/null || { echo "$d is not installed (munge, slurmctld, slurmd, slurm-client)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "slurmd runs as root"; exit 77; }
dir=$(mktemp -d /tmp/titan-slurm-XXXXXX)
lives() { [ -n "$1" ] && grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
end() {
	for d in slurmd slurmctld munged; do
		pid=$(cat "$dir/$d.pid" 2>/dev/null)
		lives "$pid" && kill "$pid"
		for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
			lives "$pid" && sleep 0.25
		done
		lives "$pid" && kill -9 "$pid"
	done
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 1' INT TERM
chmod 755 "$dir" # munged looks at the rights of its socket's folder
mkdir "$dir/spool" "$dir/state"
head -c 1024 /dev/urandom >"$dir/munge.key"
chmod 600 "$dir/munge.key"
host=$(hostname -s) port=$((20000 + $$ % 20000))
cat >"$dir/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
SlurmctldPort=$port
SlurmdPort=$((port + 1))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF="$dir/slurm.conf"
munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" \
	>/dev/null 2>&1 </dev/null || { echo "munged does not start here"; exit 77; }
slurmctld -c >/dev/null 2>&1 </dev/null
slurmd >/dev/null 2>&1 </dev/null
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	[ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && break
	sleep 0.5
done
[ "$(sinfo -h -o %t 2>/dev/null)" = idle ] || { echo "slurmd does not come up here: $(tail -n 2 "$dir/slurmd.log" "$dir/slurmctld.log" 2>/dev/null)"; exit 77; }
"$@" </dev/null
