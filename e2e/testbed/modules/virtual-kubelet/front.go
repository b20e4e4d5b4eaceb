package virtualkubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// front stands between the suite and the API server, because two things of the suite are fixed:
//   - It asks for usage at port 10250 of a pod that is named like the node, where a virtual kubelet
//     of its own runs and answers to anybody. That is led to the node's own proxy, where the API
//     server says who it is, as it does to any kubelet.
//   - Its pods have images like `foo`, which nobody has. They get another.
//
// All else passes as it is.
type front struct {
	server     *httptest.Server
	kubeconfig string
	ofPod      string
	ofNode     string
	image      string
}

func startFront(kubeconfig, node, image, folder string) (*front, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	behind, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	f := &front{
		kubeconfig: filepath.Join(folder, "front.yaml"),
		ofPod:      fmt.Sprintf("/pods/https:%s:10250/proxy/", node),
		ofNode:     fmt.Sprintf("/api/v1/nodes/%s/proxy/", node),
		image:      image,
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(behind) },
		Transport:     transport,
		FlushInterval: -1, // A watch's event is told at once.
	}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.adapt(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	if err := f.write(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *front) write() error {
	config := api.NewConfig()
	config.Clusters["front"] = &api.Cluster{Server: f.server.URL}
	config.Contexts["front"] = &api.Context{Cluster: "front"}
	config.CurrentContext = "front"
	return clientcmd.WriteToFile(*config, f.kubeconfig)
}

func (f *front) close() {
	f.server.CloseClientConnections()
	f.server.Close()
}

func (f *front) adapt(r *http.Request) error {
	if _, path, found := strings.Cut(r.URL.Path, f.ofPod); found {
		r.URL.Path, r.URL.RawPath = f.ofNode+path, ""
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if body, err = f.withImage(body); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	return nil
}

func (f *front) withImage(body []byte) ([]byte, error) {
	// Clients write JSON or protobuf.
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	pod, is := decoded.(*corev1.Pod)
	if !is {
		return nil, fmt.Errorf("%T is no pod", decoded)
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = f.image
		// Kubernetes pulls what has no tag each time, and no registry has it.
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullIfNotPresent
	}
	return json.Marshal(pod)
}
