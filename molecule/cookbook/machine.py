#!/usr/bin/python3
"""Gives a lab node the devices of the cookbook's recipes: device nodes, udev's links, and a /sys that describes them.

A device node is one of the kernel's memory devices under another name, so that it opens without a driver. A disk is a
loop device without a file. Files in /sys and in udev's database have the numbers of real devices. /sys keeps everything
else of this machine, except its USB and PCI devices and its GPIO chips.
"""

import itertools
import os
import pathlib
import stat
import subprocess

SYS = pathlib.Path("/sys")
USB = "lab/0000:00:14.0/usb1"
#: null, zero, full, random, urandom
NUMBERS = itertools.cycle([(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)])


def node(path, mode=0o660):
    """A device node in /dev, unless the machine has it, as it may have kvm and fuse."""
    place = pathlib.Path("/dev", path)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, stat.S_IFCHR | mode, os.makedev(*next(NUMBERS)))
        place.chmod(mode)


def disk(name, serial, number):
    """An NVMe disk with a partition, and udev's links to both."""
    for path, by_id, minor in ((name, serial, number), (f"{name}p1", f"{serial}-part1", number - 1)):
        os.mknod(f"/dev/{path}", stat.S_IFBLK | 0o660, os.makedev(7, minor))
        link(f"disk/by-id/nvme-{by_id}", path)


def link(path, target):
    place = pathlib.Path("/dev", path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(pathlib.Path("/dev", target), place.parent))


def file(path, text=""):
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)


def extend(directory, *left_out):
    """Mount a directory over one of /sys, with the same entries except some, and room for others."""
    place, made = SYS / directory, pathlib.Path("/run/lab-sys", directory)
    made.mkdir(parents=True)
    for entry in place.iterdir():
        if entry.name in left_out:
            continue
        if entry.is_symlink():
            (made / entry.name).symlink_to(os.readlink(entry))
        elif entry.is_dir():
            (made / entry.name).mkdir()
            subprocess.run(["mount", "--rbind", entry, made / entry.name], check=True)
    subprocess.run(["mount", "--rbind", made, place], check=True)


def files(directory, **attributes):
    place = SYS / "devices" / directory
    place.mkdir(parents=True, exist_ok=True)
    for name, text in attributes.items():
        (place / name.rstrip("_")).write_text(f"{text}\n")


def on_bus(bus, directory, driver="", **attributes):
    """A device with its link in the bus."""
    files(directory, uevent=f"DRIVER={driver}" if driver else "", **attributes)
    place = SYS / "bus" / bus / "devices" / directory.rpartition("/")[2]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(SYS / "devices" / directory, place.parent))
    point(f"devices/{directory}/subsystem", f"bus/{bus}")
    if driver:
        (SYS / f"bus/{bus}/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        point(f"devices/{directory}/driver", f"bus/{bus}/drivers/{driver}")


def point(path, target):
    """A link in /sys."""
    (SYS / path).symlink_to(os.path.relpath(SYS / target, (SYS / path).parent))


def link_of_class(name, directory):
    (SYS / "class" / name).mkdir(exist_ok=True)
    point(f"class/{name}/{directory.rpartition('/')[2]}", f"devices/{directory}")


def with_node(directory, devname, dev, **properties):
    """A device node, and its directory below the device that has it. properties: more of the kernel's properties."""
    lines = [f"DEVNAME={devname}", *(f"{key}={value}" for key, value in properties.items())]
    files(directory, dev=dev, uevent="\n".join(lines))
    node(devname)


def in_udev(dev, links=(), **properties):
    """A device's entry in udev's database, without which the device does not count as ready."""
    lines = ["I:1", *(f"S:{path}" for path in links), *(f"E:{key}={value}" for key, value in properties.items())]
    file(f"/run/udev/data/c{dev}", "".join(f"{line}\n" for line in lines))


def usb(port, number, vendor, product, driver="", below=(), serial=""):
    """A USB device with one interface. below: device nodes, each as class, name and number."""
    directory = f"{USB}/{port}"
    files(directory, **({"serial": serial} if serial else {}))
    on_bus("usb", directory, "usb", idVendor=vendor, idProduct=product, busnum=1, devnum=number)
    with_node(directory, f"bus/usb/001/{number:03}", f"189:{number - 1}")
    on_bus("usb", f"{directory}/{port}:1.0", driver, bInterfaceNumber="00")
    for kind, name, dev in below:
        with_node(f"{directory}/{port}:1.0/{kind}/{name}", name, dev)


def pci(address, vendor, device, class_code, driver="", group="", numa_node=-1, below=()):
    """A PCI function. below: device nodes, each as class, path and number."""
    directory = f"lab/{address}"
    given = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class_": f"0x{class_code}", "numa_node": numa_node}
    on_bus("pci", directory, driver, **given)
    if group:
        members = SYS / f"kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        point(f"devices/{directory}/iommu_group", f"kernel/iommu_groups/{group}")
        point(f"kernel/iommu_groups/{group}/devices/{address}", f"devices/{directory}")
        node(f"vfio/{group}", 0o600)
    for kind, path, dev in below:
        with_node(f"{directory}/{kind}/{path.rpartition('/')[2]}", path, dev)


def serial_adapters():
    usb("1-1", 3, "10c4", "ea60", "cp210x", [("tty", "ttyUSB0", "188:0")], "9c414fdf5bd9ee118970b24c37b89984")
    usb("1-2", 4, "0403", "6001", "ftdi_sio", [("tty", "ttyUSB1", "188:1")], "A50285BI")
    usb("1-3", 5, "0403", "6001", "ftdi_sio", [("tty", "ttyUSB2", "188:2")], "AB0JQ8XV")
    usb("1-4", 6, "1cf1", "0030", "cdc_acm", [("tty", "ttyACM2", "166:2")], "DE2412345")
    by_id = "serial/by-id/usb-"
    link(by_id + "Silicon_Labs_CP2102N_9c414fdf5bd9ee118970b24c37b89984-if00-port0", "ttyUSB0")
    link(by_id + "FTDI_FT232R_USB_UART_A50285BI-if00-port0", "ttyUSB1")
    link(by_id + "FTDI_FT232R_USB_UART_AB0JQ8XV-if00-port0", "ttyUSB2")
    link(by_id + "dresden_elektronik_ingenieurtechnik_GmbH_ConBee_II_DE2412345-if00", "ttyACM2")


def dongles():
    usb("1-5", 8, "0529", "0001")
    usb("1-10", 9, "1050", "0407", "usbhid", [("hidraw", "hidraw7", "240:7")])
    node("parport0")


def modems():
    ports = [("tty", f"ttyUSB{number}", f"188:{number}") for number in range(3, 7)]
    usb("1-8", 31, "2c7c", "0125", "option", [*ports, ("usbmisc", "cdc-wdm0", "180:176")])


def accelerators():
    """The Coral stick is without its firmware. Hailo's driver makes its node without the PCI function as its parent."""
    usb("1-9", 30, "1a6e", "089a")
    pci("0000:04:00.0", "1ac1", "089a", "088000", "apex", below=[("apex", "apex_0", "120:0")])
    pci("0000:05:00.0", "1e60", "2864", "0b4000", "hailo")
    node("hailo0")


def disks():
    """Each link to a disk has a second one with the number of the NVMe namespace."""
    for name, serial, number in (("nvme1n1", "411111", 7), ("nvme2n1", "422222", 5)):
        serial = f"Samsung_SSD_990_PRO_2TB_S6Z1NJ0W{serial}"
        disk(name, serial, number)
        link(f"disk/by-id/nvme-{serial}_1", name)


def clocks_and_gpio():
    """Only the first function of the network card has the clock. Another GPIO chip is not the one of the header."""
    clock = [("ptp", "ptp3", "248:3"), ("gnss", "gnss0", "245:0")]
    pci("0000:5e:00.0", "8086", "1593", "020000", "ice", below=clock)
    pci("0000:5e:00.1", "8086", "1593", "020000", "ice")
    for number, compatible in ((10, "brcm,brcmstb-gpio"), (13, "raspberrypi,rp1-gpio")):
        directory = f"lab/gpio/gpiochip{number}"
        on_bus("gpio", directory)
        with_node(directory, f"gpiochip{number}", f"254:{number}", OF_NAME="gpio", OF_COMPATIBLE_0=compatible)
        in_udev(f"254:{number}")


def dvb():
    for name in ("frontend0", "demux0", "dvr0"):
        node(f"dvb/adapter1/{name}")


def seat():
    """Without this machine's own keyboards."""
    pathlib.Path("/dev/input").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/input"], check=True)
    for path in ("dri/renderD131", "input/event0", "input/event1"):
        node(path)
    link("dri/by-path/pci-0000:00:02.0-render", "dri/renderD131")
    pathlib.Path("/tmp/.X11-unix").mkdir(exist_ok=True)


def cameras():
    """The third one has no media controller. udev knows the fourth one."""
    for place in range(3):
        first, second = 2 * place, 2 * place + 1
        nodes = [("video4linux", f"video{each}", f"81:{each}") for each in (first, second)]
        nodes += [("", f"media{place}", f"510:{place}")] * (place < 2)
        usb(f"1-6.{place + 1}", 10 + place, "046d", "0825", "uvcvideo", nodes, f"4E1F2A{29 + place}")
    usb("1-7", 20, "0fd9", "0066", "uvcvideo", [("video4linux", f"video{each}", f"81:{each}") for each in (6, 7)])
    for number, index, capabilities in ((6, 0, ":capture:"), (7, 1, ":")):
        link_of_class("video4linux", f"{USB}/1-7/1-7:1.0/video4linux/video{number}")
        name = f"v4l/by-id/usb-Elgato_Facecam_FW33K1A04921-video-index{index}"
        link(name, f"video{number}")
        serial = "Elgato_Facecam_FW33K1A04921"
        in_udev(f"81:{number}", [name], ID_SERIAL=serial, ID_V4L_CAPABILITIES=capabilities)


def sound():
    for card, streams in ((0, "p"), (1, "cp")):
        node(f"snd/controlC{card}")
        for stream in streams:
            node(f"snd/pcmC{card}D0{stream}")
    node("snd/timer")


def gpus():
    nvidia = ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "dri/card1", "dri/renderD128"]
    for path in [*nvidia, *(f"nvidia-caps/nvidia-cap{part}" for part in (21, 22, 30, 31))]:
        node(path, 0o666)
    file("/usr/bin/nvidia-cdi-hook", "#!/bin/sh\n")
    file("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")
    pathlib.Path("/etc/cdi").mkdir(exist_ok=True)
    node("kfd")
    amd = [("drm", "dri/card2", "226:2"), ("drm", "dri/renderD129", "226:129")]
    intel = [("drm", "dri/card0", "226:0"), ("drm", "dri/renderD130", "226:130")]
    pci("0000:c1:00.0", "1002", "74a1", "120000", "amdgpu", numa_node=1, below=amd)
    # The second partition of this GPU is a platform device.
    partition = "lab-platform/amdgpu_xcp_1/drm/renderD132"
    with_node(partition, "dri/renderD132", "226:132")
    whole = "lab/0000:c1:00.0/drm/renderD129"
    for directory, number, place in ((whole, 129, "pci-0000:c1:00.0"), (partition, 132, "platform-amdgpu_xcp_1")):
        link_of_class("drm", directory)
        file(f"/run/udev/data/c226:{number}", f"S:dri/by-path/{place}-render\nE:ID_PATH={place}\n")
    pci("0000:03:00.0", "8086", "56c0", "038000", "xe", numa_node=0, below=intel)


def pci_functions():
    node("vfio/vfio", 0o666)
    # A graphics card: its GPU and its sound function, in one group.
    pci("0000:65:00.0", "10de", "1eb8", "030000", "vfio-pci", group="42")
    pci("0000:65:00.1", "10de", "10f8", "040300", "vfio-pci", group="42")
    # A network card with two virtual functions.
    pci("0000:3b:00.0", "8086", "1592", "020000", "ice", group="50")
    for number in (0, 1):
        pci(f"0000:3b:02.{number}", "8086", "1889", "020000", "vfio-pci", group=f"{51 + number}")
    host_adapter = [
        ("infiniband_verbs", "infiniband/uverbs0", "231:192"),
        ("infiniband_mad", "infiniband/umad0", "231:0"),
    ]
    pci("0000:81:00.0", "15b3", "101b", "020700", "mlx5_core", numa_node=1, below=host_adapter)
    node("infiniband/rdma_cm", 0o666)
    # Another one, with two scalable functions.
    card = "pci0000:a0/0000:a0:01.0/0000:a1:00.0"
    for function, number in ((4, 2), (5, 3)):
        directory = f"{card}/mlx5_core.sf.{function}/infiniband_verbs/uverbs{number}"
        with_node(directory, f"infiniband/uverbs{number}", f"231:{192 + number}")
        link_of_class("infiniband_verbs", directory)
        in_udev(f"231:{192 + number}")


def fpgas():
    for card, end in itertools.product(range(3), ("user", "c2h_0")):
        node(f"xdma{card}_{end}", 0o600)
    file("/opt/fpga/bitstreams/filter.bit")


def main():
    extend("devices")
    extend("class")
    extend("bus", "usb", "pci", "gpio")
    extend("kernel/iommu_groups") if (SYS / "kernel/iommu_groups").exists() else extend("kernel")
    on_bus("usb", USB, "usb", idVendor="1d6b", idProduct="0002", bDeviceClass="09")
    with_node(USB, "bus/usb/001/001", "189:0")
    for path in ("kvm", "fuse", "tpmrm0", "watchdog0"):
        node(path, 0o600)
    serial_adapters()
    dongles()
    modems()
    cameras()
    sound()
    seat()
    dvb()
    gpus()
    accelerators()
    pci_functions()
    fpgas()
    disks()
    clocks_and_gpio()


if __name__ == "__main__":
    main()
