// Run the virtual-kubelet project's suite for providers against one node of a cluster.
package virtualkubelet

import (
	"flag"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "file that leads to the cluster")
	namespace  = flag.String("namespace", "", "where pods are made; it has to be there")
	node       = flag.String("node", "", "the node that pods are bound to")
	image      = flag.String("image", "", "what pods run instead of the suite's images, which nobody has")
	patience   = flag.Duration("patience", 2*time.Minute, "how long the suite waits for one thing")
)

func TestProvider(t *testing.T) {
	front, err := startFront(*kubeconfig, *node, *image, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer front.close()
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{
		Kubeconfig:   front.kubeconfig,
		Namespace:    *namespace,
		NodeName:     *node,
		WatchTimeout: *patience,
	}).Run(t)
}
