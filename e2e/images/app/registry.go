package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// blob is a piece of an image, as a registry hands it out.
type blob struct {
	kind    string
	content []byte
}

func (b blob) digest() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b.content))
}

func (b blob) describe() map[string]any {
	return map[string]any{"mediaType": b.kind, "digest": b.digest(), "size": len(b.content)}
}

// offer is a registry with one image, this program itself, for who knows user and password. It
// answers to the address only, and prints what it was asked for by whom.
func offer(ctx context.Context, address, user, password string) error {
	blobs, manifest := ownImage()
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	handler := func(writer http.ResponseWriter, request *http.Request) {
		name, word, _ := request.BasicAuth()
		known := name == user && word == password
		fmt.Printf("%s %s known=%t\n", request.Method, request.URL.Path, known)
		if !known {
			writer.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(writer, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		handOut(writer, request, blobs, manifest)
	}
	return answer(ctx, socket, http.HandlerFunc(handler))
}

func handOut(writer http.ResponseWriter, request *http.Request, blobs map[string]blob, manifest blob) {
	mux := http.NewServeMux()
	give := func(found blob) {
		writer.Header().Set("Content-Type", found.kind)
		writer.Header().Set("Content-Length", fmt.Sprint(len(found.content)))
		writer.Header().Set("Docker-Content-Digest", found.digest())
		_, _ = writer.Write(found.content)
	}
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/private/app/manifests/{reference}", func(http.ResponseWriter, *http.Request) {
		give(manifest)
	})
	mux.HandleFunc("GET /v2/private/app/blobs/{digest}", func(_ http.ResponseWriter, asked *http.Request) {
		found, there := blobs[asked.PathValue("digest")]
		if !there {
			http.NotFound(writer, asked)
			return
		}
		give(found)
	})
	mux.ServeHTTP(writer, request)
}

// ownImage packs the program that runs into an image.
func ownImage() (map[string]blob, blob) {
	program, err := os.ReadFile("/proc/self/exe")
	check(err)
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	check(archive.WriteHeader(&tar.Header{Name: "app", Mode: 0o755, Size: int64(len(program))}))
	_, err = archive.Write(program)
	check(err)
	check(archive.Close())

	layer := blob{kind: layerType, content: zipped(packed.Bytes())}
	config := blob{kind: configType, content: asJSON(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/app"}},
		"rootfs": map[string]any{
			"type":     "layers",
			"diff_ids": []string{blob{content: packed.Bytes()}.digest()},
		},
	})}
	manifest := blob{kind: manifestType, content: asJSON(map[string]any{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        config.describe(),
		"layers":        []any{layer.describe()},
	})}
	return map[string]blob{layer.digest(): layer, config.digest(): config}, manifest
}

func zipped(content []byte) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := writer.Write(content)
	check(err)
	check(writer.Close())
	return packed.Bytes()
}

func asJSON(value any) []byte {
	text, err := json.Marshal(value)
	check(err)
	return text
}
