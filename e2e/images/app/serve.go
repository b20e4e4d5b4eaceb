package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const address = ":8080"

// serve answers until the context ends.
//
// GET /healthz and /ready tell whether all is well, POST with ?ok=false or ?ok=true switches that;
// /env, /file?path= and /version tell what the container sees.
func serve(ctx context.Context, socket net.Listener) error {
	mux := http.NewServeMux()
	addSwitch(mux, "/healthz")
	addSwitch(mux, "/ready")
	mux.HandleFunc("GET /env", func(writer http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(writer).Encode(os.Environ())
	})
	mux.HandleFunc("GET /file", func(writer http.ResponseWriter, request *http.Request) {
		content, err := os.ReadFile(request.URL.Query().Get("path"))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = writer.Write(content)
	})
	mux.HandleFunc("GET /version", func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(writer, os.Getenv("VERSION"))
	})
	return answer(ctx, socket, mux)
}

// addSwitch serves a check that can be made to fail.
func addSwitch(mux *http.ServeMux, path string) {
	var failing atomic.Bool
	mux.HandleFunc("GET "+path, func(writer http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(writer, "made to fail", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST "+path, func(_ http.ResponseWriter, request *http.Request) {
		failing.Store(request.URL.Query().Get("ok") == "false")
	})
}

func open() net.Listener {
	socket, err := net.Listen("tcp", address)
	check(err)
	return socket
}

func answer(ctx context.Context, socket net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(socket); err != http.ErrServerClosed {
		return err
	}
	return nil
}
