"""What the gRPC client and the service share: conversion to protobuf, status, the table of methods."""
