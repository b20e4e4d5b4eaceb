package main

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// useTool does what `kubectl exec` asks for; false means that the command is no tool. Tools tell the
// witness nothing: they are no runs of a container.
func useTool(ctx context.Context, command string, arguments []string) bool {
	switch command {
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		check(err)
	case "lines":
		printLines(ctx, arguments)
	case "window":
		tellWindow(ctx)
	case "fill":
		fill(arguments[0], number(arguments[1]))
	case "digest":
		digest(arguments[0])
	case "echo":
		check(echo(ctx, open()))
	case "spill":
		check(spill(os.Stdout, number(arguments[0]), number(arguments[1])))
		if arguments[2] == "wait" {
			<-ctx.Done()
		}
	case "take":
		check(take())
	case "tick":
		tick(ctx, time.Duration(number(arguments[0]))*time.Millisecond)
	case "show":
		given := given(arguments)
		waits := len(given) > 0 && given[len(given)-1] == "wait"
		if waits {
			given = given[:len(given)-1]
		}
		show(given)
		if waits {
			<-ctx.Done()
		}
	case "notice":
		notice(ctx, arguments[0])
	case "ask":
		ask(given(arguments))
	case "fetch":
		fetch(given(arguments))
	case "end":
		check(syscall.Kill(1, syscall.SIGTERM))
	case "registry":
		check(offer(ctx, arguments[0], arguments[1], arguments[2]))
	default:
		return false
	}
	return true
}

// given leaves out what main added behind the arguments.
func given(arguments []string) []string {
	return slices.DeleteFunc(slices.Clone(arguments), func(argument string) bool { return argument == "" })
}

// printLines prints numbered lines with a pause in milliseconds after each; then it ends with a
// code, or waits to be asked to end.
func printLines(ctx context.Context, arguments []string) {
	count, pause := number(arguments[0]), time.Duration(0)
	if arguments[1] != "" {
		pause = time.Duration(number(arguments[1])) * time.Millisecond
	}
	for i := range count {
		fmt.Printf("line %d\n", i+1)
		select {
		case <-ctx.Done():
			os.Exit(0)
		case <-time.After(pause):
		}
	}
	if arguments[2] != "" {
		os.Exit(number(arguments[2]))
	}
	<-ctx.Done()
}

// tellWindow prints the size of its terminal, first and whenever that changes, until a line comes.
func tellWindow(ctx context.Context) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(over)
	}()
	for {
		var size struct{ rows, columns, x, y uint16 }
		syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
		fmt.Printf("window %dx%d\n", size.rows, size.columns)
		select {
		case <-changed:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// fill writes a file that no compression makes smaller, the same each time.
func fill(path string, mebibytes int) {
	file, err := os.Create(path)
	check(err)
	_, err = io.Copy(file, io.LimitReader(rand.NewChaCha8([32]byte{}), int64(mebibytes)*mebibyte))
	check(err)
	check(file.Close())
}

func digest(path string) {
	file, err := os.Open(path)
	check(err)
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	check(err)
	fmt.Printf("%x\n", hash.Sum(nil))
}

// spill prints as many mebibytes in lines of so many bytes, and a last line that says `spilled`.
func spill(output io.Writer, mebibytes, lineBytes int) error {
	line := []byte(strings.Repeat("x", lineBytes-1) + "\n")
	writer := bufio.NewWriterSize(output, 1<<16)
	for left := mebibytes * mebibyte; left > 0; left -= lineBytes {
		if _, err := writer.Write(line); err != nil {
			return err
		}
	}
	fmt.Fprintln(writer, "spilled")
	return writer.Flush()
}

// take says that it is ready, reads its standard input to the end and prints how much there was.
func take() error {
	fmt.Println("ready")
	taken, err := io.Copy(io.Discard, os.Stdin)
	fmt.Println(taken)
	return err
}

// tick prints a line with the time, in seconds since 1970, again and again.
func tick(ctx context.Context, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			fmt.Printf("tick %.6f\n", float64(now.UnixMicro())/1e6)
		}
	}
}

// echo takes a line with a number and as many bytes from each connection, answers with both that
// number and the bytes' digest, and closes. It does not wait for the other side to say that this is
// all: container runtimes do not pass that on. A number below zero asks for as many bytes instead.
func echo(ctx context.Context, socket net.Listener) error {
	context.AfterFunc(ctx, func() { socket.Close() })
	for {
		connection, err := socket.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go answerDigest(connection)
	}
}

func answerDigest(connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	var length int64
	if _, err := fmt.Fscanf(reader, "%d\n", &length); err != nil {
		return
	}
	if length < 0 {
		_, _ = io.Copy(connection, io.LimitReader(zeros{}, -length))
		return
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, reader, length); err == nil {
		fmt.Fprintf(connection, "%d %x\n", length, hash.Sum(nil))
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// pack is the part of tar that `kubectl cp` uses: `tar cf - PATH` and `tar -xmf - -C FOLDER`.
func pack(arguments []string) {
	switch action := strings.TrimLeft(arguments[0], "-"); {
	case strings.Contains(action, "c"):
		check(packUp(os.Stdout, arguments[len(arguments)-1]))
	case strings.Contains(action, "x"):
		check(unpack(os.Stdin, folderOf(arguments)))
	}
}

func folderOf(arguments []string) string {
	for i, argument := range arguments {
		if argument == "-C" {
			return arguments[i+1]
		}
	}
	return "."
}

func packUp(output io.Writer, root string) error {
	archive := tar.NewWriter(output)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		about, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(about, "")
		if err != nil {
			return err
		}
		header.Name = strings.TrimLeft(path, "/")
		if err := archive.WriteHeader(header); err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(archive, file)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func unpack(input io.Reader, folder string) error {
	archive := tar.NewReader(input)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(folder, header.Name)
		if header.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = unpackFile(archive, path)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(content io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
