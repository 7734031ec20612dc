package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/credentials"
)

// The accepted values of Config.Login.
const (
	LoginPassword = "password"             // of the URL, libpq's environment or files, or the command
	LoginRDS      = "aws_rds_iam"          // Amazon RDS and Aurora
	LoginCloudSQL = "google_cloud_sql_iam" // Cloud SQL and AlloyDB
	LoginEntra    = "azure_entra"          // Azure Database for PostgreSQL
)

// Logins are all of them.
var Logins = []string{LoginPassword, LoginRDS, LoginCloudSQL, LoginEntra}

// longestPassword is what PostgreSQL accepts (PG_MAX_AUTH_TOKEN_LENGTH).
const longestPassword = 65535

// validateLogin refuses half a login, and two of them.
func (c Config) validateLogin() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("postgres.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Login != "" && !slices.Contains(Logins, c.Login) {
		bad("login", "%q is none of %s", c.Login, strings.Join(Logins, ", "))
	}
	if len(c.PasswordCommand) > 0 && c.PasswordCommand[0] == "" {
		bad("password_command", "names no program")
	}
	for _, of := range []struct {
		key, login string
		given      bool
	}{
		{"password_command", LoginPassword, len(c.PasswordCommand) > 0},
		{"aws", LoginRDS, c.AWS.IsSet()},
		{"azure", LoginEntra, c.Azure.IsSet()},
		{"google", LoginCloudSQL, c.Google.IsSet()},
	} {
		if of.given && cmp.Or(c.Login, LoginPassword) != of.login {
			bad(of.key, "does not belong to postgres.login = %q; remove it, or set postgres.login = %q",
				c.Login, of.login)
		}
	}
	section := func(name string) func(key, format string, args ...any) {
		return func(key, format string, args ...any) { bad(name+"."+key, format, args...) }
	}
	c.AWS.Validate(section("aws"))
	c.Google.Validate(section("google"))
	return errors.Join(errs...)
}

// checkLogin refuses what the connection string and the login do not have in common.
func (c Config) checkLogin(pc *pgconn.Config) error {
	other := "postgres.login = " + strconv.Quote(c.Login)
	switch {
	case len(c.PasswordCommand) > 0:
		other = "postgres.password_command"
	case c.Login == LoginPassword || c.Login == "":
		return nil
	}
	if pc.Password != "" {
		return fmt.Errorf("%w: two logins: a password is in postgres.url, PGPASSWORD or the password "+
			"file, and there is %s; remove one", ErrConfig, other)
	}
	if len(c.PasswordCommand) > 0 {
		return nil
	}
	hosts := targets(pc)
	if c.Login == LoginRDS && severalHosts(hosts) {
		return fmt.Errorf("%w: %s signs for one host: name the cluster's endpoint alone in "+
			"postgres.url", ErrConfig, other)
	}
	for _, t := range hosts {
		if t.TLSConfig == nil && !Local(t.Host) {
			return fmt.Errorf("%w: %s would send its token to %s in the clear: set "+
				"sslmode=verify-full in postgres.url", ErrConfig, other, t.Host)
		}
	}
	return nil
}

// LogIn obtains the password or token of one connection. Errors wrap ErrAuthentication or
// ErrUnreachable. It blocks for connect_timeout at most.
func LogIn(ctx context.Context, c Config, pc *pgconn.Config) (err error) {
	if len(c.PasswordCommand) == 0 && (c.Login == LoginPassword || c.Login == "") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	var t credentials.Token
	switch {
	case len(c.PasswordCommand) > 0:
		pc.Password, err = runPasswordCommand(ctx, c.PasswordCommand)
		return err
	case c.Login == LoginRDS:
		address := net.JoinHostPort(pc.Host, strconv.Itoa(int(pc.Port)))
		t.Value, err = c.AWS.RDSToken(ctx, "postgres.aws", address, pc.User)
	case c.Login == LoginCloudSQL:
		t, err = c.Google.Token(ctx, "postgres.google", credentials.CloudSQLScope)
	case c.Login == LoginEntra:
		t, err = c.Azure.Token(ctx, "postgres.azure", credentials.AzurePostgreSQLScope)
	}
	if err != nil {
		return &loginError{err}
	}
	pc.Password = t.Value
	return nil
}

// loginError is a login without a password or token.
type loginError struct{ err error }

func (e *loginError) Error() string { return "log in to PostgreSQL: " + e.err.Error() }

func (e *loginError) Unwrap() []error {
	if errors.Is(e.err, credentials.ErrRefused) {
		return []error{ErrAuthentication, e.err}
	}
	return []error{ErrUnreachable, e.err}
}

// IsLogin reports whether err is that of a password or token that could not be obtained: it says
// nothing about the server.
func IsLogin(err error) bool {
	_, is := errors.AsType[*loginError](err)
	return is
}

// tokenAdvice is what to check when the server refuses a token.
var tokenAdvice = map[string]string{
	LoginRDS: "GRANT rds_iam TO the role, allow rds-db:connect for it, and set the parameter " +
		"rds.iam_auth_for_replication = 1 for replication connections; then the clock: " +
		"chronyc tracking (docs/SIGN-IN.md)",
	LoginCloudSQL: "the role is the service account's email without .gserviceaccount.com, and " +
		"needs roles/cloudsql.instanceUser; the instance needs " +
		"cloudsql.iam_authentication (docs/SIGN-IN.md)",
	LoginEntra: "the role is made by pgaadauth_create_principal for the identity that logs in " +
		"(docs/SIGN-IN.md)",
}

// refusedToken is a server's refusal of a token.
type refusedToken struct {
	err   error
	login string
}

func (e *refusedToken) Error() string { return e.err.Error() }

func (e *refusedToken) Unwrap() error { return e.err }

// Explain has Advice say what to check when the server refuses a token. It returns any other error
// as it is.
func (c Config) Explain(err error) error {
	if tokenAdvice[c.Login] == "" || !errors.Is(err, ErrAuthentication) ||
		errors.As(err, new(*loginError)) {
		return err
	}
	return &refusedToken{err, c.Login}
}

// runPasswordCommand returns the first line that the program prints. No error has any of it.
func runPasswordCommand(ctx context.Context, command []string) (string, error) {
	failed := func(class error, text, hint string) (string, error) {
		return "", &loginError{&credentials.Error{Class: class,
			Text: "postgres.password_command " + command[0] + ": " + text, Hint: hint}}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, complaint bounded
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second // a child of it may keep the pipe
	err := cmd.Run()
	switch {
	case err != nil && cmd.ProcessState == nil && ctx.Err() == nil: // it did not start
		return failed(credentials.ErrRefused, oneLine(err.Error()),
			"name a program that postrider may run, by its whole path")
	case ctx.Err() != nil:
		return failed(credentials.ErrUnavailable, "no end in time",
			"run it where the relay runs, as its user; postgres.connect_timeout is its limit")
	case err != nil:
		text := err.Error()
		if last := complaint.lastLine(); last != "" {
			text += ": " + last
		}
		return failed(credentials.ErrUnavailable, text, "run it where the relay runs, as its user")
	}
	line, _, _ := bytes.Cut(out.kept, []byte("\n"))
	password := strings.TrimSuffix(string(line), "\r")
	switch {
	case password == "":
		return failed(credentials.ErrUnavailable, "its first line is empty",
			"the first line of its standard output is the password")
	case len(password) > longestPassword || strings.ContainsRune(password, 0):
		return failed(credentials.ErrRefused, "its first line is no password: too long, or binary",
			"the first line of its standard output is the password")
	}
	return password, nil
}

// bounded keeps the beginning of what a program writes, and takes the rest.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	const most = longestPassword + len("\r\n")
	b.kept = append(b.kept, p[:min(len(p), most-len(b.kept))]...)
	return len(p), nil
}

// lastLine is the last line that is not empty, for one log line.
func (b *bounded) lastLine() string {
	lines := strings.Split(strings.TrimSpace(string(b.kept)), "\n")
	last := strings.ToValidUTF8(oneLine(lines[len(lines)-1]), "?")
	const most = 200
	return last[:min(len(last), most)]
}
