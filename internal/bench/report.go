package bench

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/internal/postgres"
)

// Report is everything that was measured, and where.
type Report struct {
	Environment
	Workloads []Measured `json:"workloads"`
}

// Environment is what the figures depend on.
type Environment struct {
	Date      time.Time `json:"date"`
	Version   string    `json:"version"` // of postrider
	Revision  string    `json:"revision,omitempty"`
	Go        string    `json:"go"`
	Platform  string    `json:"platform"`
	Cores     int       `json:"cores"`
	CPU       string    `json:"cpu,omitempty"` // model; empty: not known
	Postgres  string    `json:"postgres"`      // version
	Kafka     string    `json:"kafka"`         // version as it seems from the outside
	InProcess bool      `json:"in_process_kafka"`
	Embedded  bool      `json:"embedded_postgres"`
}

// Clean reports whether every row of every run arrived once and in order.
func (r *Report) Clean() bool {
	return !slices.ContainsFunc(r.Workloads,
		func(w Measured) bool { return !w.Clean() || w.Delivered != w.Written })
}

// Join puts reports of the same environment together, in their order, whatever their dates: a long
// series is measured in parts.
func Join(reports []*Report) (joined []*Report) {
	for _, r := range reports {
		i := slices.IndexFunc(joined, func(j *Report) bool {
			e := j.Environment
			e.Date = r.Date
			return e == r.Environment
		})
		if i < 0 {
			joined = append(joined,
				&Report{Environment: r.Environment, Workloads: slices.Clone(r.Workloads)})
			continue
		}
		joined[i].Date = r.Date
		joined[i].Workloads = append(joined[i].Workloads, r.Workloads...)
	}
	return joined
}

func newEnvironment() Environment {
	return Environment{
		Date: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Cores:    runtime.NumCPU(), CPU: cpuModel(),
	}
}

// cpuModel is empty where the system does not provide it.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// versions are those of the servers; "?": not known.
func (b *bench) versions(ctx context.Context) (server, cluster string) {
	server, cluster = "?", "?"
	if conn, err := b.connect(ctx); err == nil {
		server, _, _ = strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
		postgres.Close(conn)
	}
	if brokers, err := kadm.NewClient(b.client.Client).ApiVersions(ctx); err == nil {
		for _, one := range brokers.Sorted() {
			cluster = strings.TrimPrefix(one.VersionGuess(), "v")
		}
	}
	return server, cluster
}
