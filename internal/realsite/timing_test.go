package realsite_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// A median is of pairs runs of each side.
const pairs = 9

// bareScript runs date in a container with the programs that every node has, as scripts/bench does.
const bareScript = `#!/bin/sh
exec unshare -Urm sh -c '
d=$(mktemp -d); mkdir $d/lower $d/upper $d/work $d/merged
squashfuse_ll -f -o offset=%d %s $d/lower & fuse=$!
while ! mountpoint -q $d/lower; do :; done
mount -t overlay -o lowerdir=$d/lower,upperdir=$d/upper,workdir=$d/work,userxattr overlay $d/merged
bwrap --bind $d/merged / --proc /proc --dev /dev --unshare-pid --die-with-parent --clearenv --setenv PATH /bin /bin/date --rfc-3339=ns
umount $d/merged; kill $fuse; chmod -R u+rwx $d; rm -rf $d'
`

// The test prints the time from a run's command to its first instruction, compared with a bare
// sbatch of the same container. It never fails for being slow, because the machine's other work
// counts, too.
func TestFirstInstructionIsMeasuredBesideABareJob(t *testing.T) {
	s := realSite(t)
	s.ready(t, s.run(t, "true")) // the image is in the cache
	sif := s.on(t, login, "ls /shared/researcher/cl-slurm/cache/sif/*/*/content")
	copied := filepath.Join(t.TempDir(), "sif")
	content, err := output(t.Context(), nil, append(append([]string{}, s.SSH...), login, "base64 -w0 "+sif)...)
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := base64.StdEncoding.DecodeString(content)
	if err == nil {
		err = os.WriteFile(copied, bytes, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := sifconfig.Read(copied)
	if err != nil {
		t.Fatal(err)
	}
	s.copyTo(t, login, "bare.sh", fmt.Appendf(nil, bareScript, config.Offset, sif))
	var ours, bare, barest []float64
	for range pairs {
		ours = append(ours, s.seconds(t, client+`date +%s.%N; u=$(cl run '/bin/date --rfc-3339=ns') && cl wait $u >/dev/null && at=$(cl cat $u/stdout) && date -d "$at" +%s.%N`))
		bare = append(bare, s.seconds(t, `date +%s.%N; sbatch --wait --quiet --export=NONE --mem=200 --output=bare.out --error=/dev/null bare.sh; date -d "$(cat bare.out)" +%s.%N`))
		barest = append(barest, s.seconds(t, `date +%s.%N; sbatch --wait --quiet --export=ALL --mem=200 --output=bare.out --error=/dev/null bare.sh; date -d "$(cat bare.out)" +%s.%N`))
	}
	for _, side := range []struct {
		against string
		base    []float64
	}{{"bare_sbatch_export_none", bare}, {"bare_sbatch_export_all", barest}} {
		t.Logf("bench: site/first_instruction %.3g s ratio=%.2f against=%s bar=- met", median(ours), median(ours)/median(side.base), side.against)
	}
}

// seconds runs a script that prints two times, and returns the difference.
func (s site) seconds(t *testing.T, script string) float64 {
	t.Helper()
	printed := strings.Fields(s.on(t, login, script))
	if len(printed) != 2 {
		t.Fatalf("%s printed %q, want two times", script, printed)
	}
	var at [2]float64
	for i, text := range printed {
		var err error
		if at[i], err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	return at[1] - at[0]
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
