from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="mini_gan",
    ext_modules=[CUDAExtension(name="swirl_cuda", sources=["swirl.cpp", "swirl_kernel.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
