package gpudriver

import "strings"

// list names the parts of a driver. The name of a library means all its versions.
type list struct {
	// libraries are the driver's, even if the image has its own.
	libraries []string
	// common are libraries that drivers of several vendors use, or that do not belong to the
	// driver. An image keeps its own.
	common   []string
	programs []string
	// files are data and sockets.
	files []string
}

// nvidia returns Apptainer's list (etc/nvliblist.conf), and the entries of NVIDIA's own list that
// are missing there (libnvidia-container, src/nvc_info.c: utility_libs, compute_libs,
// graphics_libs).
func nvidia() list {
	return list{
		libraries: strings.Fields(`
			libcuda.so libcudadebugger.so libEGL_nvidia.so libGLESv1_CM_nvidia.so libGLESv2_nvidia.so libGLX_nvidia.so
			libnvcucompat.so libnvcudla.so libnvcuextend.so libnvcuvid.so
			libnvidia-allocator.so libnvidia-cbl.so libnvidia-cfg.so libnvidia-compiler.so libnvidia-eglcore.so
			libnvidia-egl-gbm.so libnvidia-egl-wayland.so libnvidia-encode.so libnvidia-fatbinaryloader.so libnvidia-fbc.so
			libnvidia-glcore.so libnvidia-glsi.so libnvidia-glvkspirv.so libnvidia-gpucomp.so libnvidia-gtk2.so
			libnvidia-gtk3.so libnvidia-ifr.so libnvidia-ml.so libnvidia-ngx.so libnvidia-nscq.so libnvidia-nvvm.so
			libnvidia-opencl.so libnvidia-opticalflow.so libnvidia-pkcs11.so libnvidia-pkcs11-openssl3.so
			libnvidia-ptxjitcompiler.so libnvidia-rmapi-tegra.so libnvidia-rtcore.so libnvidia-tls.so libnvidia-wfb.so
			libnvoptix.so libnvos.so libnvosd.so libnvrm_chip.so libnvrm_gpu.so libnvrm_host1x.so libnvrm_mem.so
			libnvrm_stream.so libnvrm_surface.so libnvrm_sync.so libnvsciipc.so libnvsocsys.so libnvtegrahv.so
			libvdpau_nvidia.so`),
		common: strings.Fields(`
			libEGL.so libGLdispatch.so libGLESv1_CM.so libGLESv2.so libGL.so libGLX.so libOpenCL.so libOpenGL.so`),
		programs: strings.Fields("nvidia-smi nvidia-debugdump nvidia-persistenced nvidia-cuda-mps-control nvidia-cuda-mps-server"),
		files: strings.Fields(`
			/usr/share/glvnd/egl_vendor.d/10_nvidia.json
			/usr/share/vulkan/icd.d/nvidia_icd.json
			/usr/share/vulkan/icd.d/nvidia_layers.json
			/usr/share/vulkan/implicit_layer.d/nvidia_layers.json
			/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json
			/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json
			/usr/share/nvidia/nvoptix.bin
			/run/nvidia-persistenced/socket`),
	}
}

// amd returns Apptainer's list for ROCm (etc/rocmliblist.conf). The image has the rest of ROCm.
func amd() list {
	return list{
		common: strings.Fields(`
			libamdcomgr64.so libamdocl64.so libcltrace.so libCXLActivityLogger.so libdrm.so libdrm_amdgpu.so libhc_am.so
			libmcwamp.so libmcwamp_cpu.so libmcwamp_hsa.so libnuma.so libOpenCL.so libpci.so librocr_debug_agent64.so`),
		programs: []string{"rocm-smi", "rocminfo"},
	}
}
