// Package child runs real servers as child processes: under an unprivileged user where a server refuses
// root, ended when this process dies, and with their last words kept for error messages.
package child
