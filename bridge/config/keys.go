package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// A Key is a key of the configuration.
type Key struct {
	// Name is the key with its tables. NAME, HOST, ARCH and ID stand for names that the
	// site chooses.
	Name string
	Type Type
	// Default is the value, as TOML, of a file that leaves the key out. Where that is
	// no constant, Default is empty and Otherwise says in Markdown what applies instead.
	Default, Otherwise string
	// Meaning is the explanation for operators, in Markdown. Links are relative to docs.
	Meaning string
	// Comment is the comment that init writes behind the key's value; empty where init does not write the key,
	// or writes a comment of its own.
	Comment string
}

// Type is the form of a value in the file.
type Type string

// The types. docs/keys.md explains them.
const (
	Text  Type = "text"
	Count Type = "number"
	Flag  Type = "true or false"
	List  Type = "list"
	Time  Type = "time"
	Bytes Type = "size"
	Share Type = "size or percentage"
)

// anyName is the queue's name in the names of [Keys], where a file has one of the site's choice.
const anyName = "NAME"

// defaultsFile returns a configuration file with the defaults.
func defaultsFile() []byte {
	var b strings.Builder
	for _, k := range Keys() {
		if k.Default != "" {
			fmt.Fprintf(&b, "%s = %s\n", k.Name, k.Default)
		}
	}
	return []byte(b.String())
}

// Comment returns what init writes behind the value of a key.
func Comment(name string) string {
	for _, k := range Keys() {
		if k.Name == name {
			return k.Comment
		}
	}
	return ""
}

// Keys returns all keys in the order of the reference.
func Keys() []Key {
	keys := bridgeKeys()
	keys = append(keys, imageKeys()...)
	keys = append(keys, diskKeys()...)
	keys = append(keys, queueKeys()...)
	return append(keys, mappingKeys()...)
}

const (
	required = "required"
	none     = "none"
	noBound  = "no bound"
)

func bridgeKeys() []Key {
	low := DefaultLowWater()
	return []Key{
		{Name: "server", Type: Text, Otherwise: required, Meaning: "The address of the CodaLab server, such as `\"https://worksheets.example.org\"`.", Comment: "the CodaLab server"},
		{Name: "user", Type: Text, Otherwise: required, Meaning: "The server's user for whom the bridge runs bundles.", Comment: "the bridge runs this user's bundles"},
		{Name: "password_file", Type: Text, Otherwise: "`token_file`", Meaning: "A file with the user's password. Only you may be able to read it (mode 0600). It or `token_file` is required.", Comment: "only you may read it"},
		{Name: "token_file", Type: Text, Otherwise: "`password_file`", Meaning: "A file with a token of `cl-server` in place of the password, for the workers `<name>-*` ([Tokens](server.md#tokens-of-bridges-and-workers)). CodaLab's own server has no such tokens. The bridge reads the file again when the server refuses the token.", Comment: "only you may read it"},
		{Name: "name", Type: Text, Otherwise: "`<user>-<host>`", Meaning: "The name of the bridge. The server sees a worker `<name>-<queue>` for each queue."},
		{Name: "shared", Type: Text, Otherwise: required, Meaning: "A directory that this host and the compute nodes see at the same path.", Comment: "this host and the compute nodes see it at the same path"},
		{Name: "trust", Type: List, Otherwise: none, Meaning: "Users, and groups with an `@` before their names, who may write to `shared`, to the ledger's directory, to the configuration or above them, and so act as the bridge's account ([Whose directories](operators/reference.md#whose-directories)). A number may stand for a name.", Comment: "these may write above the bridge's directories, and so act as this account"},
		{Name: "server_store", Type: Text, Otherwise: "bundle contents travel over the network", Meaning: "The server's own store, where the server, this host and the nodes share its disk ([A disk shared with the server](operators/reference.md#a-disk-shared-with-the-server))."},
		{Name: "ledger", Type: Text, Otherwise: "`$XDG_STATE_HOME/cl-bridge/ledger.db`", Meaning: "The ledger: an SQLite file on a disk of this host, or `postgres://…`. The bridge refuses a file on a network file system. The flag `--ledger` overrides it ([The ledger](operators/reference.md#the-ledger)).", Comment: "on a disk of this host, because your home is on other hosts too"},
		{Name: "worker", Type: Text, Otherwise: "in the directory of `cl-bridge`", Meaning: "The program that the bridge copies to the shared directory as `cl-worker`: a `cl-worker-node`, or a `cl-worker`, which starts later."},
		{Name: "metrics_listen", Type: Text, Otherwise: "not served", Meaning: "The address, such as `127.0.0.1:9463`, on which the bridge serves `/metrics` for Prometheus to everybody who reaches it ([Monitoring](operators/monitoring.md)). The flag `--metrics-listen` overrides it."},
		{Name: "metrics_file", Type: Text, Otherwise: "not written", Meaning: "A file whose name ends in `.prom`, in the directory of node_exporter's textfile collector, where no port is wanted. The bridge writes its metrics there every 15 seconds, and removes the file when it ends."},
		{Name: "disk_settle", Type: Time, Default: `"10s"`, Meaning: "How long the shared disk may take to show the bridge a node's writes. It has to be above the attribute cache of the disk's mount (`acregmax`, `acdirmax`)."},
		{Name: "keep_after_ack", Type: Time, Default: `"1d"`, Meaning: "How long results stay on the shared disk after the server has acknowledged them."},
		{Name: "keep_history", Type: Time, Default: `"14d"`, Meaning: "How long `cl-bridge explain` knows the history of a bundle that the bridge has forgotten; `1m` or more. A hundred thousand bundles take about 40 MB of the ledger."},
		{Name: "stage_patience", Type: Time, Default: `"5m"`, Meaning: "How long the bridge repeats a failing pull or download."},
		{Name: "outage_patience", Type: Time, Default: `"1d"`, Meaning: "The same while the server or a registry does not answer or the disk is full, which is not the bundle's fault."},
		{Name: "collect_patience", Type: Time, Default: `"3d"`, Meaning: "How long the bridge repeats a failing upload of results, once a minute. Then the bundle fails."},
		{Name: "quota_patience", Type: Time, Default: `"7d"`, Meaning: "How long results that are larger than what is left of their owner's disk quota wait on the shared disk for room. Then the bundle fails. With `\"0\"` it fails at once ([Results that exceed a quota](operators/reference.md#results-that-exceed-a-quota))."},
		{Name: "max_attempts", Type: Count, Default: "3", Meaning: "The most attempts of one bundle when the platform fails."},
		{Name: "cancel_strays", Type: Flag, Default: "true", Meaning: "Whether the bridge cancels an orphan job, a job of its own that belongs to no bundle, after ten minutes. With `false` it only logs the job."},
		{Name: "low_water", Type: Share, Otherwise: fmt.Sprintf("`%g%%`, at most `%s`", 100*low.Share, codalab.FormatSize(low.Bytes)), Meaning: "How much of the disk of `shared` has to stay free: a size of `64m` or more, or a percentage up to 50. With less the bridge claims no bundle and brings in no inputs. `\"0\"` means nothing has to ([When the disk is nearly full](operators/day-to-day.md#when-the-disk-is-nearly-full)).", Comment: "how much of that disk has to stay free"},
		{Name: "sweep_grace", Type: Time, Default: `"7d"`, Meaning: "How long a leftover must be unchanged before the bridge removes it; `1h` or more ([Leftovers on disk](operators/day-to-day.md#leftovers-on-disk))."},
		{Name: "slurm.bin", Type: Text, Otherwise: "`PATH`", Meaning: "The directory of Slurm's commands.", Comment: "the directory of Slurm's commands"},
		{Name: "slurm.conf", Type: Text, Otherwise: "`$SLURM_CONF`", Meaning: "The path of slurm.conf.", Comment: "where slurm.conf is"},
		{Name: "slurm.cluster", Type: Text, Otherwise: "the cluster of slurm.conf", Meaning: "The cluster of all jobs, as `--clusters` names it, where the accounting database knows several ([Another cluster](operators/reference.md#another-cluster))."},
		{Name: "slurm.accounting", Type: Flag, Otherwise: "Slurm's own `AccountingStorageType`", Meaning: "Whether `sacct` works at this site."},
		{Name: "slurm.min_job_age", Type: Time, Otherwise: "Slurm's own `MinJobAge`", Meaning: "How long Slurm is certain to show an ended job; not above the site's MinJobAge."},
		{Name: "slurm.observe_every", Type: Time, Default: `"6s"`, Meaning: "The pause between two calls of `squeue`; `1s` or more."},
	}
}

func imageKeys() []Key {
	return []Key{
		{Name: "image.default_cpu", Type: Text, Otherwise: "the server's choice, else `" + plan.CodaLabCPUImage + "`", Meaning: "The image of bundles that name none and need no GPU. It overrides the server's choice ([Images](operators/reference.md#images))."},
		{Name: "image.default_gpu", Type: Text, Otherwise: "the server's choice, else `" + plan.CodaLabGPUImage + "`", Meaning: "The same for bundles with GPUs."},
		{Name: "image.remember", Type: Time, Default: `"1m"`, Meaning: "How long the bridge remembers which image a tag stands for."},
		{Name: "image.offline", Type: Flag, Default: "false", Meaning: "With `true` the bridge asks no registry: bundles can use only the images that you have [brought in](operators/day-to-day.md#images-beforehand)."},
		{Name: "image.roots", Type: List, Otherwise: none, Meaning: "Directories with SIFs and archives that every bundle may use as an image, by path."},
		{Name: "image.docker_config", Type: Text, Otherwise: "those of the bridge's user ([Logins](operators/reference.md#registries))", Meaning: "A file with logins for registries, as `docker login` writes it."},
		{Name: "image.logins", Type: Text, Otherwise: none, Meaning: "A directory with logins of bundle owners: `ID.json` or `ID/config.json`, mode 0600."},
		{Name: "image.registry.HOST.mirrors", Type: List, Otherwise: none, Meaning: "Mirrors of a registry. The bridge asks them first."},
		{Name: "image.registry.HOST.plain_http", Type: Flag, Otherwise: "only on loopback", Meaning: "Whether the bridge may speak plain HTTP to the registry."},
		{Name: "image.certs", Type: List, Otherwise: "`/etc/containers/certs.d`, `/etc/docker/certs.d`", Meaning: "Directories with certificates of registries, laid out as Docker's `/etc/docker/certs.d`."},
		{Name: "image.fetch_private", Type: List, Otherwise: none, Meaning: "Hosts or networks (`10.1.0.0/16`) of your own at which images may be, besides public addresses and the registries and mirrors of these tables ([Registries](operators/reference.md#registries))."},
		{Name: "image.conversions", Type: Count, Default: "3", Meaning: "How many images the bridge brings in at a time; for one owner at most half of them, rounded up ([Turns](operators/reference.md#turns-among-owners-and-queues))."},
		{Name: "image.temp_dir", Type: Text, Otherwise: "the cache", Meaning: "Where layers lie on this host while an image is converted; not in your home directory."},
		{Name: "image.queue", Type: Text, Otherwise: "images are converted on this host", Meaning: "Jobs of this queue [convert images](operators/reference.md#where-images-are-converted)."},
		{Name: "image.time", Type: Time, Otherwise: "`" + codalab.SpellDuration(DefaultImageTime) + "`", Meaning: "The time of a job that converts an image; `1m` or more."},
		{Name: "image.compression", Type: Text, Default: `"zstd"`, Meaning: "How SIFs are compressed: `zstd`, `gzip`, `lz4` or `xz`. The nodes' kernels and squashfuse have to know the compression. SingularityCE knows `gzip` but not `zstd`, which matters where it gets a SIF ([containers.md](containers.md)) or people run one by hand."},
		{Name: "image.level", Type: Count, Otherwise: "1", Meaning: "The level of compression, from 1 to 22 for `zstd` and 9 for `gzip`."},
		{Name: "image.block_size", Type: Bytes, Default: `"128k"`, Meaning: "The block size of SIFs: a power of two from `4k` to `1m`."},
		{Name: "image.processors", Type: Count, Default: "2", Meaning: "The processors of one conversion."},
		{Name: "image.memory", Type: Bytes, Default: `"128m"`, Meaning: "The buffers of one conversion."},
		{Name: "image.nice", Type: Count, Default: "0", Meaning: "The number that is added to the nice value of a conversion, up to 19."},
		{Name: "workers.ARCH", Type: Text, Otherwise: none, Meaning: "A `cl-worker-node` built for the nodes of a queue of this architecture."},
	}
}

func diskKeys() []Key {
	return []Key{
		{Name: "link.root", Type: Text, Otherwise: "no data is used in place", Meaning: "A directory whose data bundles use in place. Each directory has a table `[[link]]` of its own ([Data in place](operators/reference.md#data-in-place))."},
		{Name: "link.users", Type: List, Otherwise: "you alone", Meaning: "The other users whose bundles may use it."},
		{Name: "cache.dir", Type: Text, Otherwise: "`<shared>/cache`", Meaning: "The directory of images and dependencies. Several bridges may share one ([The cache](operators/reference.md#the-cache))."},
		{Name: "cache.size", Type: Bytes, Otherwise: noBound, Meaning: "How much all of them may take."},
		{Name: "cache.owner_size", Type: Bytes, Otherwise: noBound, Meaning: "How much those of one user may take."},
		{Name: "cache.owner_sizes.ID", Type: Bytes, Otherwise: "`cache.owner_size`", Meaning: "How much those of this user may take. `cl info` shows the owner's id."},
		{Name: "cache.high", Type: Count, Default: "90", Meaning: "Trimming begins above this percentage of a bound."},
		{Name: "cache.low", Type: Count, Default: "80", Meaning: "Trimming ends at this percentage."},
		{Name: "cache.min_free", Type: Bytes, Otherwise: "a tenth of the disk, at most `100g`", Meaning: "Trimming also begins when the disk has less free."},
		{Name: "cache.settle", Type: Time, Default: `"2m"`, Meaning: "How long another host may take to see a change. It has to be above the mount's `acregmax` and `acdirmax`; `0s` where only this host uses the disk."},
		{Name: "cache.group", Type: Flag, Default: "false", Meaning: "Whether the group of the cache's directory shares the cache. A shared cache lies in `v2` below `cache.dir` ([cache.md](contributors/cache.md))."},
		{Name: "staging.max_dependency", Type: Bytes, Otherwise: "bounded by the disk", Meaning: "How much one dependency may hold, unpacked. In any case it has to leave free `low_water` of the shared disk, and at least 1 GiB (a twentieth of a small disk)."},
		{Name: "staging.max_files", Type: Count, Default: "10000000", Meaning: "How many files, directories and links one dependency may hold."},
		{Name: "staging.bandwidth", Type: Bytes, Otherwise: noBound, Meaning: "Bytes a second of all downloads of the bridge together, such as `\"200m\"`; `64k` or more."},
		{Name: "staging.downloads", Type: Count, Default: "8", Meaning: "How many dependencies the bridge downloads at a time; for one owner at most half of them, rounded up ([Turns](operators/reference.md#turns-among-owners-and-queues))."},
		{Name: "staging.max_results", Type: Bytes, Otherwise: "the size of the disk of `shared`", Meaning: "How much one bundle's results may hold where they are uploaded. Holes in files count as if they were full. Larger results are not sent, and the bundle fails."},
	}
}

func queueKeys() []Key {
	return []Key{
		{Name: "queue.NAME.tag", Type: Text, Otherwise: "NAME", Meaning: "What bundles ask for with `--request-queue`."},
		{Name: "queue.NAME.group", Type: Text, Otherwise: "bundles of `user` alone", Meaning: "A group: the queue also takes bundles of its members, as far as the bridge's user has all permissions on them. A bridge with a worker account of `cl-server` needs no group."},
		{Name: "queue.NAME.default", Type: Flag, Default: "false", Meaning: "`true` for the one queue that takes bundles which name no queue.", Comment: "takes bundles that name no queue"},
		{Name: "queue.NAME.partition", Type: Text, Otherwise: "Slurm's default", Meaning: "The partition, or several with commas."},
		{Name: "queue.NAME.account", Type: Text, Otherwise: "Slurm's default", Meaning: "The account that Slurm charges.", Comment: "Slurm charges this account"},
		{Name: "queue.NAME.qos", Type: Text, Otherwise: "Slurm's default", Meaning: "The QOS."},
		{Name: "queue.NAME.wckey", Type: Text, Otherwise: "not passed", Meaning: "The workload characterization key."},
		{Name: "queue.NAME.reservation", Type: Text, Otherwise: "not passed", Meaning: "The reservation."},
		{Name: "queue.NAME.constraint", Type: Text, Otherwise: "not passed", Meaning: "The features that nodes must have."},
		{Name: "queue.NAME.nice", Type: Count, Otherwise: "0", Meaning: "What is added to the nice value of the queue's jobs, beside a negative `request_priority`: they begin later."},
		{Name: "queue.NAME.gres_type", Type: Text, Otherwise: "`--gres=gpu:n`", Meaning: "The type of GPUs: `--gres=gpu:TYPE:n`.", Comment: "the type of GPUs that bundles get"},
		{Name: "queue.NAME.default_time", Type: Time, Otherwise: "`max_time`", Meaning: "The time limit of bundles that ask for none.", Comment: "for bundles that ask for no time"},
		{Name: "queue.NAME.max_time", Type: Time, Otherwise: none, Meaning: "The largest time limit that a bundle may ask for.", Comment: "no bundle may ask for more: the partition's limit"},
		{Name: "queue.NAME.default_disk", Type: Bytes, Otherwise: "no limit", Meaning: "The disk limit of bundles that ask for none, such as `100g`.", Comment: "for bundles that ask for no disk"},
		{Name: "queue.NAME.time_grace", Type: Time, Default: `"2m"`, Meaning: "The time that is added for Slurm's time limit, so that the worker's own limit comes first."},
		{Name: "queue.NAME.kill_grace", Type: Time, Otherwise: "`2s`", Meaning: "How long a command may go on after TERM, for example to write a checkpoint; KILL follows ([Long runs](operators/reference.md#long-runs))."},
		{Name: "queue.NAME.signal", Type: Time, Otherwise: "at the limit", Meaning: "How long before its time limit a command gets TERM, to save its state; KILL follows at the limit. A run with less than twice that time gets it after half of its time ([Long runs](operators/reference.md#long-runs))."},
		{Name: "queue.NAME.memory_overhead", Type: Bytes, Default: `"64m"`, Meaning: "The memory that is added to `request_memory` for `--mem`."},
		{Name: "queue.NAME.max_processes", Type: Count, Default: strconv.Itoa(DefaultMaxProcesses), Meaning: "How many processes and threads a bundle may have at a time; `64` or more, and `0` for no limit ([Processes](security.md#processes))."},
		{Name: "queue.NAME.max_in_flight", Type: Count, Otherwise: noBound, Meaning: "How many bundles of the queue may be in Slurm at a time. Those of an array or a pack count one by one."},
		{Name: "queue.NAME.array_tasks", Type: Count, Otherwise: "no arrays", Meaning: "How many waiting bundles of one owner that ask for the same may go to Slurm as one job array, with one `sbatch` ([Arrays](operators/many-runs.md#arrays))."},
		{Name: "queue.NAME.pack_runs", Type: Count, Otherwise: "no packs", Meaning: "How many waiting bundles of one owner that ask for the same may share one job, each with its own container, limits, output and end ([Packs](operators/many-runs.md#packs)). With those that join it while it runs, a pack has at most so many."},
		{Name: "queue.NAME.pack_side_by_side", Type: Count, Otherwise: "needed for `pack_runs`", Meaning: "How many runs of a pack run at a time. Its job asks for the resources of so many, on one node."},
		{Name: "queue.NAME.pack_time", Type: Time, Otherwise: "needed for `pack_runs`", Meaning: "The longest time limit of a pack's job; a pack of few bundles asks for less. Only bundles whose own time limit is shorter go in packs."},
		{Name: "queue.NAME.retry_begun", Type: Text, Default: `"never"`, Meaning: "`never` or `on_platform`: whether a bundle that has begun may begin again after its node or a disk failed, or after a preemption, with an empty directory. It does not count for bundles that ask [to be resumed](operators/reference.md#long-runs)."},
		{Name: "queue.NAME.path", Type: List, Otherwise: none, Meaning: "Directories on the nodes where jobs look for programs first, such as `[\"/opt/apptainer/bin\"]` ([The environment of jobs](operators/reference.md#the-environment-of-jobs))."},
		{Name: "queue.NAME.environment.VARIABLE", Type: Text, Otherwise: none, Meaning: "A variable for the commands of the queue's bundles, such as `HF_HOME` ([Variables and directories of the site](operators/owners.md#variables-and-directories-of-the-site)). It must hold no secret."},
		{Name: "queue.NAME.binds", Type: List, Otherwise: none, Meaning: "Directories of the nodes that the containers of the queue show, read-only: `\"/data/hf\"`, or `\"/data/hf:/hf\"` for another path in the container."},
		{Name: "queue.NAME.scratch", Type: Text, Default: `"/tmp"`, Meaning: "A directory on the nodes' own disk."},
		{Name: "queue.NAME.workdir", Type: Text, Default: `"shared"`, Meaning: "`shared` or `local`: the disk on which the command works ([Working directories on the nodes](operators/reference.md#working-directories-on-the-nodes))."},
		{Name: "queue.NAME.runtime", Type: Text, Default: `"auto"`, Meaning: "How containers are run: `auto`, `builtin`, `apptainer`, `singularity`, `docker` or `podman` ([containers.md](containers.md))."},
		{Name: "queue.NAME.network", Type: Text, Default: `"request"`, Meaning: "Which network bundles with `--request-network` get: `request`, one of their own from which they reach other machines; `host`, that of the node, with its loopback interface; `never`, none ([Networks](containers.md#networks))."},
		{Name: "queue.NAME.results", Type: Text, Default: `"upload"`, Meaning: "`upload` or `keep`: whether results go to the server ([Results that stay](operators/reference.md#results-that-stay))."},
		{Name: "queue.NAME.default_image", Type: Text, Otherwise: "`image.default_cpu`, `image.default_gpu`", Meaning: "The image of the queue's bundles that name none."},
		{Name: "queue.NAME.architecture", Type: Text, Otherwise: "that of the bridge's host", Meaning: "The architecture of the queue's nodes, its images and its `cl-worker`: `amd64` or `arm64`, also as `x86_64` or `aarch64`; `ppc64le`, `riscv64`, `s390x`."},
		{Name: "queue.NAME.sbatch_options", Type: List, Otherwise: none, Meaning: "Further options of sbatch, such as `[\"--licenses=matlab\"]`. Options that the bridge sets itself or that have a key, such as `--job-name`, `--requeue` or `--partition`, are refused."},
	}
}
