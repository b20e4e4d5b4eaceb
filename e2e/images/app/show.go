package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Longer files, and those that are no text, are shown by their digest.
const longestText = 1 << 14

const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// show prints what a container was given: user, arguments, environment, and all files below the
// paths. One fact is one line, so that two containers can be compared line by line.
func show(paths []string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	groups, err := os.Getgroups()
	check(err)
	slices.Sort(groups)
	fmt.Fprintf(out, "user %d:%d %v\n", os.Getuid(), os.Getgid(), groups)
	for i, argument := range os.Args[1:] {
		fmt.Fprintf(out, "argument %d %q\n", i, argument)
	}
	variables := os.Environ()
	slices.Sort(variables)
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(out, "variable %s %q\n", name, value)
	}
	for _, path := range paths {
		showBelow(out, path)
	}
	fmt.Fprintln(out, "that is all")
}

// showBelow leaves out what begins with two dots: in volumes that change, the kubelet keeps its own
// folders there, named by the time.
func showBelow(out io.Writer, root string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(out, "file %s cannot be read: %s\n", path, reason(err))
			return nil
		}
		if strings.HasPrefix(entry.Name(), "..") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		showFile(out, path, entry)
		return nil
	})
	check(err)
}

func showFile(out io.Writer, path string, entry fs.DirEntry) {
	link := ""
	if entry.Type() == fs.ModeSymlink {
		points, err := os.Readlink(path)
		check(err)
		link = " by a link to " + points
	}
	// Of what a link points to, which is what a program sees.
	about, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(out, "file %s%s cannot be read: %s\n", path, link, reason(err))
		return
	}
	owner := about.Sys().(*syscall.Stat_t)
	fmt.Fprintf(out, "file %s %s %d:%d%s\n", path, about.Mode(), owner.Uid, owner.Gid, link)
	if !about.IsDir() {
		showContent(out, path)
	}
}

func showContent(out io.Writer, path string) {
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
		fmt.Fprintf(out, "file %s cannot be read: %s\n", path, reason(err))
	case len(content) > longestText || bytes.ContainsRune(content, 0):
		fmt.Fprintf(out, "content %s %d bytes, %x\n", path, len(content), sha256.Sum256(content))
	default:
		for _, line := range strings.SplitAfter(string(content), "\n") {
			fmt.Fprintf(out, "content %s %q\n", path, line)
		}
	}
}

// reason is what the system says, without the path, which stands before it.
func reason(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return err.Error()
}

// notice prints the time, in seconds since 1970, and a file's content, whenever that has changed.
func notice(ctx context.Context, path string) {
	last, ticker := "", time.NewTicker(50*time.Millisecond)
	defer ticker.Stop()
	for {
		now := "absent"
		if content, err := os.ReadFile(path); err == nil {
			now = fmt.Sprintf("%q", content)
		}
		if now != last {
			fmt.Printf("%.3f %s\n", float64(time.Now().UnixMilli())/1e3, now)
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask sends requests to the API server as a program in a cluster does, which knows nothing but what
// every pod is given, and prints what each is answered with.
func ask(paths []string) {
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}},
	}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	for _, path := range paths {
		token, err := os.ReadFile(filepath.Join(account, "token"))
		check(err)
		request, err := http.NewRequest(http.MethodGet, "https://"+server+path, nil)
		check(err)
		request.Header.Set("Authorization", "Bearer "+string(token))
		answer, err := client.Do(request)
		check(err)
		var told struct{ Kind, Message string }
		check(json.NewDecoder(answer.Body).Decode(&told))
		answer.Body.Close()
		fmt.Printf("%s %d %s %s\n", path, answer.StatusCode, told.Kind, told.Message)
	}
}

// fetch reads URLs as a program does that knows others by their names, and prints what it reads.
func fetch(urls []string) {
	client := &http.Client{Timeout: 10 * time.Second}
	for _, url := range urls {
		answer, err := client.Get(url)
		check(err)
		_, err = io.Copy(os.Stdout, answer.Body)
		check(err)
		answer.Body.Close()
	}
}
