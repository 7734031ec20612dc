package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/embedded/child"
)

// makeCluster creates the data directory: a copy of the prepared one, or one of its own when it
// needs a password or an identity.
func makeCluster(ctx context.Context, as child.Account, binDir, cache, data string,
	cfg PostgresConfig) error {
	if cfg.Password == "" && !cfg.OwnIdentity {
		template, err := clusterTemplate(ctx, as, binDir, cache)
		if err != nil {
			return err
		}
		if err := copyTree(as, template, data); err != nil {
			return fmt.Errorf("copy the prepared data directory: %w", err)
		}
	} else {
		if err := os.Mkdir(data, 0o700); err != nil {
			return fmt.Errorf("make data directory: %w", err)
		}
		if err := initCluster(ctx, as, binDir, data, cfg.Password); err != nil {
			return err
		}
	}
	for name, content := range cfg.Files {
		if err := writeOwned(as, filepath.Join(data, name), content); err != nil {
			return err
		}
	}
	hba := cfg.HBA
	if hba == "" {
		method := "trust"
		if cfg.Password != "" {
			method = "scram-sha-256"
		}
		hba = strings.ReplaceAll("local all all METHOD\nhost all all 127.0.0.1/32 METHOD\n"+
			"host replication all 127.0.0.1/32 METHOD\n", "METHOD", method)
	}
	return writeOwned(as, filepath.Join(data, "pg_hba.conf"), []byte(hba))
}

// clusterTemplate returns the prepared data directory for the binaries, making it first if needed.
func clusterTemplate(ctx context.Context, as child.Account, binDir, cache string) (string, error) {
	version, err := serverVersion(binDir)
	if err != nil {
		return "", err
	}
	// Two builds of one version may differ in what initdb writes, so the path of the binaries
	// counts.
	build := sha256.Sum256([]byte(binDir))
	dir := filepath.Join(cache, fmt.Sprintf("data-%s-%x-%d", version, build[:4], as.UID))
	err = PrepareOnce(ctx, dir,
		func(tmp string) error { return initCluster(ctx, as, binDir, tmp, "") })
	return dir, err
}

// initCluster runs initdb on the empty directory data.
func initCluster(ctx context.Context, as child.Account, binDir, data, password string) error {
	if err := errors.Join(os.Chmod(data, 0o700), as.Own(data)); err != nil {
		return fmt.Errorf("hand over data directory: %w", err)
	}
	args := []string{"--pgdata", data, "--username", "postgres", "--encoding", "UTF8", "--locale",
		"C", "--no-sync", "--no-instructions"}
	if password == "" {
		args = append(args, "--auth", "trust")
	} else {
		file := filepath.Join(filepath.Dir(data), "password")
		if err := writeOwned(as, file, []byte(password+"\n")); err != nil {
			return err
		}
		defer func() { _ = os.Remove(file) }()
		args = append(args, "--auth", "scram-sha-256", "--pwfile", file)
	}
	output := &child.Output{}
	cmd := as.Command(filepath.Join(binDir, "initdb"), args...)
	cmd.Stdout, cmd.Stderr = output, output
	p, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if err := p.Await(ctx); err != nil {
		return fmt.Errorf("run initdb: %w", errors.Join(err, p.Kill()))
	}
	if p.Err != nil {
		return fmt.Errorf("run initdb: %w\n%s", p.Err, output.LastLines(20))
	}
	return nil
}

// baseParams suit a server with data of no value. They are in postgresql.conf, so that ALTER
// SYSTEM overrides them.
func baseParams(cfg PostgresConfig, socketDir string) map[string]string {
	params := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": socketDir,
		"wal_level":               "logical",
		"max_replication_slots":   "20",
		"max_wal_senders":         "20",
		"max_connections":         "100",
		"shared_buffers":          "32MB",
		"fsync":                   "off",
		"full_page_writes":        "off",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"logging_collector":       "off",
		"log_destination":         "stderr",
	}
	maps.Copy(params, cfg.Params)
	return params
}

// configure appends params to postgresql.conf; the last mention of a name wins.
func configure(data string, params map[string]string) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n# postrider, %s\n", time.Now().UTC().Format(time.RFC3339))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(params[name], "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure the server: %w", err)
	}
	_, err = f.Write(text.Bytes())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("configure the server: %w", err)
	}
	return nil
}

// copyTree copies directories and regular files, with their modes, and hands them to the account.
func copyTree(as child.Account, from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if mode := info.Mode().Perm(); entry.IsDir() {
			err = os.Mkdir(target, mode)
		} else {
			var content []byte
			if content, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(target, content, mode)
			}
		}
		return errors.Join(err, as.Own(target))
	})
}

// writeOwned writes a private file of the account.
func writeOwned(as child.Account, path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write server file: %w", err)
	}
	if err := as.Own(path); err != nil {
		return fmt.Errorf("hand over server file: %w", err)
	}
	return nil
}
