package embedded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/postrider/postrider/internal/embedded/child"
)

// DefaultVersion is the major version of PostgreSQL that is started when the caller names none.
const DefaultVersion = "17"

// releases lists, for each major version, the releases to fetch, best first. The later entries are
// for platforms that the first one was not built for.
var releases = map[string][]string{
	"14": {"14.23.0", "14.22.0", "14.18.0"},
	"15": {"15.19.0", "15.13.0"},
	"16": {"16.15.0", "16.9.0"},
	"17": {"17.11.0", "17.5.0"},
	"18": {"18.6.0", "18.4.0"},
}

// Versions returns the major versions that StartPostgres accepts, oldest first.
func Versions() []string { return slices.Sorted(maps.Keys(releases)) }

// findServer returns the directory with initdb and postgres of the given major version: the
// cached one, else one found on the machine, else a fetched one. An empty major means
// DefaultVersion, or whatever newer or older one the machine has when that cannot be fetched.
func findServer(ctx context.Context, cache, major string) (binDir string, err error) {
	wanted := cmp.Or(major, DefaultVersion)
	candidates, known := releases[wanted]
	if !known {
		return "", fmt.Errorf("PostgreSQL %q is not one of the known major versions %s", wanted,
			strings.Join(Versions(), ", "))
	}
	for _, release := range candidates {
		if dir := filepath.Join(cache, "postgres-"+release, "bin"); hasServer(dir) {
			return dir, nil
		}
	}
	installed := installedServers()
	if dir, ok := installed[wanted]; ok {
		return dir, nil
	}

	var fetchErrs []error
	for _, release := range candidates {
		dir := filepath.Join(cache, "postgres-"+release)
		err := PrepareOnce(ctx, dir,
			func(tmp string) error { return fetchServer(ctx, tmp, wanted, release) })
		if err == nil {
			return filepath.Join(dir, "bin"), nil
		}
		fetchErrs = append(fetchErrs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if major == "" {
		for _, other := range slices.Backward(Versions()) {
			if dir, ok := installed[other]; ok {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("get PostgreSQL %s: no server of that version is installed here, and "+
		"none could be fetched: %w", wanted, errors.Join(fetchErrs...))
}

// installedServers maps major versions to the binary directories found where distributions and
// package managers put them.
func installedServers() map[string]string {
	found := map[string]string{}
	for _, major := range Versions() {
		for _, dir := range []string{
			"/usr/lib/postgresql/" + major + "/bin",
			"/usr/pgsql-" + major + "/bin",
			"/opt/homebrew/opt/postgresql@" + major + "/bin",
			"/usr/local/opt/postgresql@" + major + "/bin",
			"/Applications/Postgres.app/Contents/Versions/" + major + "/bin",
		} {
			if hasServer(dir) {
				found[major] = dir
				break
			}
		}
	}
	if path, err := exec.LookPath("postgres"); err == nil && hasServer(filepath.Dir(path)) {
		version, _ := serverVersion(filepath.Dir(path)) // empty: not found either
		major, _, _ := strings.Cut(version, ".")
		found[major] = cmp.Or(found[major], filepath.Dir(path))
	}
	return found
}

func hasServer(binDir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(binDir, program)); err != nil {
			return false
		}
	}
	return true
}

// fetchServer fills dir with the binaries of one release.
//
// The library has no call that only fetches, so it starts a server on a data directory that cannot
// be started: it fetches, checks and unpacks the binaries, runs no initdb because the directory
// names a version, and fails. Success is that the binaries are there afterwards.
func fetchServer(ctx context.Context, dir, major, release string) error {
	work := filepath.Dir(dir)
	data := filepath.Join(work, "no-data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "PG_VERSION"),
		[]byte(major+"\n"), 0o600)); err != nil {
		return fmt.Errorf("prepare the fetch: %w", err)
	}
	port, err := child.FreePort()
	if err != nil {
		return err
	}
	var output bytes.Buffer
	library := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(release)).
		Port(uint32(port)).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(dir).
		DataPath(data).
		Logger(&output))

	logs := libraryLogs()
	defer func() {
		// the library downloads with it; leave no goroutine behind
		http.DefaultClient.CloseIdleConnections()
		for _, path := range libraryLogs() {
			if !slices.Contains(logs, path) {
				_ = os.Remove(path)
			}
		}
	}()

	// The library's download takes no context. When ctx ends first, its goroutine is left to
	// finish on its own, in a directory that is removed.
	result := make(chan error, 1)
	go func() { result <- library.Start() }()
	select {
	case <-ctx.Done():
		return fmt.Errorf("fetch PostgreSQL %s: %w", release, context.Cause(ctx))
	case err = <-result:
	}
	if !hasServer(filepath.Join(dir, "bin")) {
		if err == nil {
			err = errors.New("the archive holds no server")
		}
		return fmt.Errorf("fetch PostgreSQL %s: %w", release, err)
	}
	return openToAll(dir)
}

// libraryLogs lists the log files that the library leaves in the temporary directory.
func libraryLogs() []string {
	// the pattern is valid
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*"))
	return paths
}

// openToAll lets every user read and run what the current one may, whatever the umask was.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

// serverVersion is that of the binary, for example "17.11".
func serverVersion(binDir string) (string, error) {
	program := filepath.Join(binDir, "postgres")
	text, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", program, err, bytes.TrimSpace(text))
	}
	for _, field := range strings.Fields(string(text)) {
		if _, err := strconv.ParseFloat(field, 64); err == nil {
			return field, nil
		}
	}
	return "", fmt.Errorf("no version in %q", text)
}
