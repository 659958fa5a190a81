package ledger_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// kinds makes an empty place for a ledger of each kind.
var kinds = map[string]func(testing.TB) string{"SQLite": file, "PostgreSQL": testenv.Postgres}

func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "ledger.db")
}

func open(tb testing.TB, where string) *ledger.Ledger {
	tb.Helper()
	l, err := ledger.Open(tb.Context(), where)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// queued is a row as most are that wait in Slurm.
const queued = `{
"bundle":"0x1a2b3c4d5e6f708192a3b4c5d6e7f809","queue":"gpu","run":{"uuid":"0x1a2b3c4d5e6f708192a3b4c5d6e7f809",
"bundle_type":"run","owner_id":"0x00112233445566778899aabbccddeeff","command":"python train.py --lr 0.1 --data data",
"state":"starting","frozen":null,"is_anonymous":false,"metadata":{"name":"train-resnet","description":"","tags":[],
"allow_failed_dependencies":false,"request_docker_image":"pytorch/pytorch:2.4.0","request_time":"1d","request_memory":"32g",
"request_cpus":4,"request_gpus":1,"request_queue":"gpu","request_priority":0,"request_network":false,"request_disk":"",
"exclude_patterns":[],"store":"","created":1800000000,"data_size":0},"args":"run data:dataset 'python train.py'",
"dependencies":[{"child_uuid":"0x1a2b3c4d5e6f708192a3b4c5d6e7f809","child_path":"data","parent_uuid":
"0x99887766554433221100ffeeddccbbaa","parent_path":"","parent_name":"dataset","parent_state":"ready","location":null}],
"location":null},"resources":{"cpus":4,"gpus":1,"docker_image":"pytorch/pytorch:2.4.0","time":86400,"memory":34359738368,
"disk":0,"network":false,"tag":"gpu","tag_exclusive":true},"claimed":"2027-01-15T08:00:00.123456Z","phase":"queued",
"since":"2027-01-15T08:01:00.123456Z","reason":"Slurm accepted the job","decided":"2027-01-15T08:01:00.123456Z","staged":{"image":
"/shared/ann/cl-slurm/cache/0123456789abcdef/image.sif","image_digest":
"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","dependencies":[{"child_path":"data","source":
"/shared/ann/cl-slurm/cache/fedcba9876543210/contents"}]},"attempt":1,"mark":"cl-ann-1a2b3c4d5e6f.1-9f02ab","generation":4711,
"submitted":"2027-01-15T08:00:59.123456Z","job":{"id":123456,"name":"cl-ann-1a2b3c4d5e6f.1-9f02ab","state":"PENDING",
"reason":"Priority","nodes":"","comment":"codalab bundle=0x1a2b3c4d5e6f708192a3b4c5d6e7f809 attempt=1"},
"times":{"preparing":"2027-01-15T08:00:01.123456Z"}}`

// filled is a ledger with n rows.
func filled(b *testing.B, place func(testing.TB) string, n int) (*ledger.Ledger, []plan.Row) {
	b.Helper()
	l := open(b, place(b))
	rows := make([]plan.Row, n)
	for i := range rows {
		if err := json.Unmarshal([]byte(queued), &rows[i]); err != nil {
			b.Fatal(err)
		}
		rows[i].Bundle = fmt.Sprintf("0x%032x", i)
	}
	if err := l.Save(b.Context(), rows); err != nil {
		b.Fatal(err)
	}
	return l, rows
}

func BenchmarkSave1(b *testing.B)   { benchmarkSave(b, 1) }
func BenchmarkSave100(b *testing.B) { benchmarkSave(b, 100) }

// benchmarkSave saves n of 1,000 rows in turn, each decided to something new,
// as a step of the bridge does.
func benchmarkSave(b *testing.B, n int) {
	b.Helper()
	for kind, place := range kinds {
		b.Run(kind, func(b *testing.B) {
			l, rows := filled(b, place, 1000)
			i := 0
			for b.Loop() {
				part := rows[i%(len(rows)/n)*n:][:n]
				for j := range part {
					part[j].Reason = fmt.Sprintf("decision %d", i)
					part[j].DecidedAt = part[j].DecidedAt.Add(time.Second)
					part[j].Generation++
				}
				i++
				if err := l.Save(b.Context(), part); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRows10000(b *testing.B) {
	for kind, place := range kinds {
		b.Run(kind, func(b *testing.B) {
			l, _ := filled(b, place, 10_000)
			for b.Loop() {
				if _, err := l.Rows(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
