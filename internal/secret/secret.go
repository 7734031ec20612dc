// Package secret holds values that must never be printed.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const masked = "********"

// systemdCredentials is where the files of LoadCredential= are, until the unit ends.
const systemdCredentials = "/run/credentials/"

// Secret is a password or a URL with one. Whatever prints it prints asterisks.
// The zero value is "not set".
type Secret struct {
	value string
	file  string
}

// Of makes a secret of a value.
func Of(value string) Secret { return Secret{value: value} }

// File makes a secret that is read from a file at each Reveal, so that a rotated password needs no
// restart.
func File(path string) Secret { return Secret{file: path} }

// IsSet reports whether there is a value or a file.
func (s Secret) IsSet() bool { return s.value != "" || s.file != "" }

// Path is the file that the secret is read from; empty if it was given by value.
func (s Secret) Path() string { return s.file }

// Reveal returns the value. It cuts off the line end at the end of a file.
func (s Secret) Reveal() (string, error) {
	if s.file == "" {
		return s.value, nil
	}
	if err := CheckPath(s.file); err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	b, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.file, systemdCredentials) {
		return "", fmt.Errorf("read secret: %w; systemd keeps it only while the unit runs: for "+
			"a command by hand set the key's variable to the file that LoadCredential= names, as in "+
			"POSTRIDER_POSTGRES_URL_FILE=/etc/postrider/postgres_url; in the unit itself its line "+
			"LoadCredential= is missing or has another name", err)
	}
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return "", fmt.Errorf("read secret %s: file is empty", s.file)
	}
	return v, nil
}

// CheckPath refuses a URL, a key or a certificate in the place of a path: it may be the secret
// itself. The error does not show it.
func CheckPath(path string) error {
	switch {
	case strings.Contains(path, "://"):
		return errors.New("the name of the file is a URL (it is not shown here, since it may be a " +
			"secret): a key that ends in _file takes a path")
	case strings.ContainsAny(path, "\r\n"), strings.Contains(path, "-----BEGIN"):
		return errors.New("the name of the file is a key or a certificate itself (it is not shown " +
			"here): a key that ends in _file takes the path of a file that holds it")
	}
	return nil
}

func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return masked
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the value from JSON, TOML and log encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
