package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// running has the flags of "run".
type running struct {
	at       dataLocation
	web      web
	provider provider
	mail     mailFlags
	accounts accountFlags
	limits   limitFlags
	audit    auditFlags
	format   *program.LogFormat
	// fetchPrivate are the hosts and networks of the site from which users may upload.
	fetchPrivate []string
	config       server.Config
}

func runCommand(ctx context.Context, p program.Process) *cobra.Command {
	r := running{config: server.Config{Now: p.Now}}
	cmd := &cobra.Command{
		Use: "run --data DIRECTORY", Short: "Serve until a signal comes", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Serve until a signal comes. After TERM or INT the server takes no new requests
and waits for those under way, uploads too, for as long as --shutdown-timeout.

Connections are encrypted with --tls-cert and --tls-key. Without these flags, put
a proxy with TLS in front of the server for clients on other machines, and start
the server with --behind-proxy.

The answer to GET /healthz is 200 while the server works. --metrics-listen serves
GET /metrics for Prometheus on an address of its own, without a login.

With --oidc-issuer, users may sign in by a provider of OpenID Connect (cl login
--sso). The provider has to know the address PUBLIC-URL/rest/sso/callback. Passwords
stay possible.

With --mail-server, users may ask for a mail when their runs have ended (cl wait
--notify mail). "cl-server mail" checks the server and its password. With --public-url
besides, users who have forgotten their password get a link to set another one, and
change their e-mail address. With --sign-up people make accounts for themselves.`,
		RunE: func(*cobra.Command, []string) error {
			if err := r.check(p); err != nil {
				return program.Usage(err)
			}
			return r.at.withLocked(ctx, func(data *store.Store) error {
				if err := r.parse(); err != nil {
					return program.Usage(err)
				}
				r.config.Store, r.config.WorkerProgram = data, cmp.Or(r.config.WorkerProgram, besideOwn("cl-worker"))
				return r.audit.with(&r.config, func() error { return serve(ctx, r.config, r.web) })
			})
		},
	}
	r.at.flags(cmd)
	r.web.flags(cmd)
	secretsKeyFlag(cmd, &r.config.SecretsKey)
	r.audit.flags(cmd)
	r.limits.flags(cmd.Flags())
	r.provider.flags(cmd)
	r.mail.flags(cmd.Flags())
	r.accounts.flags(cmd.Flags())
	siteFlags(cmd.Flags(), &r.config)
	f := cmd.Flags()
	r.format = program.LogFormatFlag(f)
	program.CompleteLogFormat(cmd)
	f.StringArrayVar(&r.fetchPrivate, "fetch-private", nil, "a `host` or network (10.1.0.0/16) of your own from which users may upload by URL, besides public addresses; may be repeated")
	return cmd
}

// check fails for flags that are wrong before the data directory is opened, and for files that others can replace.
func (r *running) check(p program.Process) (err error) {
	r.config.Log = p.LogAs(*r.format, false)
	err = cmp.Or(r.web.check(), r.at.checkOwn(p), checkFlagFiles(p, map[string]string{
		"--secrets-key": r.config.SecretsKey, "--audit-file": r.audit.file,
		"--tls-cert": r.web.cert, "--tls-key": r.web.key, "--oidc-client-secret-file": r.provider.secretFile,
		"--mail-password-file": r.mail.passwordFile,
	}))
	if err == nil {
		r.config.SSO, err = r.provider.options()
	}
	if err == nil {
		r.config.Mail, err = r.mail.options()
	}
	if err == nil {
		err = r.accounts.set(&r.config, r.provider.publicURL)
	}
	return err
}

// parse reads the flags that need the data directory, or come after it in messages.
func (r *running) parse() (err error) {
	if err := checkLinkRoots(r.config.LinkRoots, r.at.dir); err != nil {
		return err
	}
	if err := r.limits.parse(&r.config); err != nil {
		return err
	}
	if r.config.FetchPrivate, err = outbound.Parse(r.fetchPrivate); err != nil {
		return fmt.Errorf("--fetch-private: %w", err)
	}
	return nil
}

// siteFlags adds the flags that need no check.
func siteFlags(f *pflag.FlagSet, config *server.Config) {
	f.Var((*readersFlag)(&config.DefaultPermission), "default-permission", "who may read a new worksheet and the bundles on it besides their owner, `whom`: none, group (the owner's groups), or public (everybody, as with CodaLab); the data directory remembers it, and begins with none")
	f.BoolVar(&config.BehindProxy, "behind-proxy", false, "a proxy is in front of the server: take the clients' addresses from its X-Forwarded-For")
	f.BoolVar(&config.RequireSignIn, "require-sign-in", false, "show nothing to users who have not signed in, not even public objects")
	f.StringVar(&config.Site.DefaultCPUImage, "default-cpu-image", "codalab/default-cpu", "the Docker `image` of runs that name none")
	f.StringVar(&config.Site.DefaultGPUImage, "default-gpu-image", "codalab/default-gpu", "the Docker `image` of runs with GPUs that name none")
	f.StringArrayVar(&config.LinkRoots, "link-root", nil, "a `directory` to which bundles may link (cl upload --link): every user can read and share its files; may be repeated")
	f.BoolVar(&config.SharedDisk, "shared-disk", false, "let workers that share this disk (cl-worker --shared-file-system, cl-bridge's server_store) use contents in place")
	f.StringVar(&config.WorkerProgram, "worker-program", "", "the `file` of the cl-worker that the server serves at /rest/workers/code.tar.gz (default: cl-worker in the directory of cl-server)")
	f.DurationVar(&config.Hold, "check-in-hold", 5*time.Second, "the `time` for which a worker's check-in waits for messages")
	f.DurationVar(&config.WorkerTimeout, "worker-timeout", time.Minute, "the `time` after its last check-in when a worker counts as gone")
}

// besideOwn returns the path of a program in cl-server's own directory; the file may not exist.
func besideOwn(name string) string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(own), name)
}

// limitFlags are the limits of requests of runs; an empty text is none.
type limitFlags struct{ disk, memory, time string }

func (l *limitFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&l.disk, "max-request-disk", "", "the largest `size` of disk that a run may request, and the default of runs that request none (default: no limit)")
	f.StringVar(&l.memory, "max-request-memory", "", "the largest `size` of memory that a run may request (default: no limit)")
	f.StringVar(&l.time, "max-request-time", "", "the longest `time`, such as 3d, that a run may request, and the default of runs that request none (default: no limit)")
}

func (l *limitFlags) parse(config *server.Config) (err error) {
	for flag, size := range map[string]struct {
		text string
		to   *int64
	}{"--max-request-disk": {l.disk, &config.Site.MaxDisk}, "--max-request-memory": {l.memory, &config.Site.MaxMemory}} {
		if size.text == "" {
			continue
		}
		if *size.to, err = codalab.ParseSize(size.text); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	if l.time == "" {
		return nil
	}
	if config.Site.MaxTime, err = codalab.ParseDuration(l.time); err != nil {
		return fmt.Errorf("--max-request-time: %w", err)
	}
	return nil
}

// readersFlag is the flag --default-permission.
type readersFlag store.DefaultPermission

// String is the flag's value.
func (r *readersFlag) String() string { return string(*r) }

// Type is empty: the flag's help has a word of its own.
func (r *readersFlag) Type() string { return "" }

// Set reads the flag.
func (r *readersFlag) Set(text string) error {
	p, err := store.ParseDefaultPermission(text)
	*r = readersFlag(p)
	return err
}

// checkLinkRoots fails for directories that would expose the server's own data, or the whole machine,
// to everybody.
func checkLinkRoots(roots []string, data string) error {
	data, err := filepath.EvalSymlinks(data)
	if err == nil {
		data, err = filepath.Abs(data)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for i, root := range roots {
		if !filepath.IsAbs(root) {
			return fmt.Errorf("--link-root %s: want an absolute path", root)
		}
		roots[i] = filepath.Clean(root)
		target, err := filepath.EvalSymlinks(root)
		if err != nil {
			return fmt.Errorf("--link-root: %w", err)
		}
		for _, own := range []string{data, "/proc", "/sys", "/dev"} {
			if subpath.Within(target, own) || subpath.Within(own, target) {
				return fmt.Errorf("--link-root %s: %s would be open to everybody", root, own)
			}
		}
	}
	return nil
}

func serve(ctx context.Context, config server.Config, web web) error {
	// The garbage collector begins when the heap has doubled. The live heap is some 8 MB, and a run makes 1 MB of garbage: the
	// collector would begin after each eighth run, and take a fifth of the server's time. Memory that nobody touches takes none,
	// but counts, so the heap grows by at most 64 MiB more. A higher percent (GOGC) would multiply a large heap, too.
	const ballast = 32 << 20
	defer runtime.KeepAlive(make([]byte, ballast))
	if err := checkSecretsKey(ctx, config.Store, config.SecretsKey, config.Log); err != nil {
		return err
	}
	if err := rememberDefault(ctx, &config); err != nil {
		return err
	}
	removed, err := config.Store.Sweep(ctx)
	if err != nil {
		return err
	}
	return web.serve(ctx, config, removed)
}

// rememberDefault writes the default permission of the command line into the data directory, or takes the directory's.
func rememberDefault(ctx context.Context, config *server.Config) error {
	if config.DefaultPermission != "" {
		return config.Store.SetDefaultPermission(ctx, config.DefaultPermission)
	}
	found, chosen, err := config.Store.DefaultPermission(ctx)
	if err != nil {
		return err
	}
	config.DefaultPermission = found
	if !chosen {
		config.Log.LogAttrs(ctx, slog.LevelWarn, "everybody may read new worksheets and the bundles on them, as before: "+
			"this data directory is from an older cl-server or an import. "+
			"--default-permission none, group or public chooses, and the directory remembers it")
	}
	return nil
}
